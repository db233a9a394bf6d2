package mutants

// kafkaMutants are mistakes in the Kafka client: connections, metadata, fetches, the
// identity of a log, and the brokers' clock.
var kafkaMutants = []mutant{
	{
		name:  "a connection does not authenticate again before its session ends",
		edits: []edit{{"internal/kafka/connect.go", "time.Now().Add(session * 3 / 4)", "time.Now().Add(session * 3)"}},
		pkg:   "internal/kafka", run: "TestCluster_AuthenticatesAgain", says: "want 4 times",
	},
	{
		name:  "brokers without producer ids accept no append",
		edits: []edit{{"internal/kafka/append.go", "errors.Is(err, errNotOffered) || errors.Is(err, kafka.UnsupportedVersion)", "errors.Is(err, errNotOffered)"}},
		pkg:   "internal/kafka", run: "TestLimits_SaysWhat", says: "the brokers accept no idempotent appends",
	},
	{
		name:  "a token is used until it has ended",
		edits: []edit{{"internal/kafka/login/login.go", "now.Add(ends.Sub(now)/2)", "now.Add(ends.Sub(now)*2)"}},
		pkg:   "internal/kafka", run: "TestCluster_RenewsItsToken", says: "a token that has ended",
	},
	{
		name:  "a member that waited for another process with its instance joins by its old id",
		edits: []edit{{"internal/kafka/static.go", "		m.id = \"\" // a join", "		// a join"}},
		pkg:   "internal/kafka", run: "TestConsume_OfTwoThatFence", says: "the loser leaves false",
	},
	{
		name:  "a new connection to Kafka has no deadline",
		edits: []edit{{"internal/kafka/connect.go", "	limited, cancel := context.WithTimeout(ctx, connectTimeout)\n", "	limited, cancel := context.WithCancel(ctx)\n"}},
		pkg:   "internal/kafka", run: "TestConsume_LogsSilentBroker|TestConsume_RetriesSilentCluster", says: "the membership took",
	},
	{
		name:  "a broker that does not answer is tried first each time",
		edits: []edit{{"internal/kafka/brokers.go", "		b.next.CompareAndSwap(at, at+1) // later requests begin with the next broker\n", ""}},
		pkg:   "internal/kafka", run: "TestConsume_LogsSilentBroker|TestConsume_RetriesSilentCluster|TestPing", says: "the membership took",
	},
	{
		name:  "metadata requests ask for every topic of the cluster",
		edits: []edit{{"internal/kafka/topology.go", "	res, err := t.ask(ctx, asked)\n", "	res, err := t.ask(ctx, nil)\n"}},
		pkg:   "internal/kafka", run: "TestCluster_AsksOnlyAboutItsOwnTopics", says: "asked about (-want +got)",
	},
	{
		name:  "a leader that has moved is asked until its metadata is old",
		edits: []edit{{"internal/kafka/topology.go", "		known.suspect = true\n", ""}},
		pkg:   "internal/kafka", run: "TestCluster_NoticesLeaderMove", says: "noticed after",
	},
	{
		name:  "a recreated log is noticed only if it is shorter",
		edits: []edit{{"internal/kafka/fetch.go", "	if at.Log.Topic == noTopicID {", "	if at.Log = (wire.LogID{Epoch: -1}); at.Offset < 0 {"}},
		pkg:   "internal/kafka", run: "TestRead_NoticesRecreatedTopic", says: "Replaced:false",
	},
	{
		name:  "a log that has lost its end is read from its start",
		edits: []edit{{"internal/kafka/identity.go", "		next = min(max(first, offset), at.Offset, end)\n", "		next = min(first, offset)\n"}},
		pkg:   "internal/kafka", run: "TestRead_TruncatedLog", says: "no record is of the last nanosecond",
	},
	{
		name:  "batches beyond the end of a response count as corrupt",
		edits: []edit{{"internal/kafka/fetch.go", "	if f.Corrupt != nil {\n", "	if f.Corrupt != nil && buffer == nil {\n"}},
		pkg:   "internal/kafka", run: "TestRead_GoodBatch", says: "corrupt",
	},
	{
		name:  "the checksum of a batch is not compared",
		edits: []edit{{"internal/kafka/recordbatch/split.go", "castagnoli); want != have {", "castagnoli); want != have && false {"}},
		pkg:   "internal/kafka/recordbatch", run: "TestSplit_ReportsDamaged", says: "corrupt <nil>",
	},
	{
		name:  "a partition that was added counts as a loss",
		edits: []edit{{"internal/kafka/group_start.go", "	added := first == 0 &&", "	added := first < 0 &&"}},
		pkg:   "internal/kafka", run: "TestConsume_AddedPartition", says: "partitions were added",
	},
	{
		name:  "a commit of another member at the first start makes a partition count as added",
		edits: []edit{{"internal/kafka/group_start.go", " && wire.DecodePartitions(c.Metadata) <= number\n", "\n"}},
		pkg:   "internal/kafka", run: "TestConsume_FirstStartIsFreshForEveryMember", says: "want partitions 1 and 2 fresh",
	},
	{
		name:  "a change of the local clock changes the brokers' time",
		edits: []edit{{"internal/kafka/clock.go", "	return last.broker.Add(now.mono - last.local.mono)\n", "	return now.wall.Add(last.offset())\n"}},
		pkg:   "internal/kafka", run: "TestBrokerClock_IgnoresSteps", says: "Now is",
	},
	{
		name:  "an append time that does not fit the estimate of the brokers' clock is ignored",
		edits: []edit{{"internal/kafka/clock.go", "			d = min(d, stepEvery)\n", ""}},
		pkg:   "internal/kafka", run: "TestBrokerClock_MeasuresSoon", says: "rest waits 30s",
	},
	{
		name:  "the clock estimate believes the offset that closes earliest",
		edits: []edit{{"internal/kafka/clock.go", "	return least\n}", "	return most\n}"}},
		pkg:   "internal/kafka", run: "TestOffsetOf_", says: "and the true offset is",
	},
	{
		name:  "a read of a span continues in a recreated log",
		edits: []edit{{"internal/kafka/window.go", "		if f.Replaced {\n			return at", "		if f.Replaced && f.Next > s.End {\n			return at"}},
		pkg:   "internal/kafka", run: "TestScan_", says: "the log became shorter",
	},
	{
		name:  "a commit of a deleted topic counts for the new topic",
		edits: []edit{{"internal/kafka/commits.go", "		commits[i].FromDeletedLog = of != id\n", "		commits[i].FromDeletedLog = of == noTopicID\n"}},
		pkg:   "internal/kafka", run: "TestCommits_MarksCommitsOfOldLog", says: "FromDeletedLog:false",
	},
	{
		name:  "partitions of a recreated topic count as added to the old one",
		edits: []edit{{"internal/kafka/group_start.go", "	return of == noTopicID || id == noTopicID || of == id\n", "	return len(of) == len(id)\n"}},
		pkg:   "internal/kafka", run: "TestConsume_AddedPartition", says: "the topic was recreated",
	},
	{
		name:  "each idle connection to a broker that hangs costs a deadline",
		edits: []edit{{"internal/kafka/brokers.go", "		b.skip(of.address)\n		of.closeAll()\n", "		of.close(c)\n"}},
		pkg:   "internal/kafka", run: "TestCluster_HangingBroker", says: "appended after",
	},
	{
		name:  "in a rebalance, each group waits for its turn to hear of it",
		edits: []edit{{"internal/kafka/heartbeats.go", "		close(h.rebalance)\n", ""}},
		pkg:   "internal/kafka", run: "TestHeartbeats", says: "did not ask at once",
	},
	{
		name:  "a commit that failed is not sent again",
		edits: []edit{{"internal/kafka/generation.go", "		if err != nil {\n			due = time.After(commitEvery)\n		}\n", ""}},
		pkg:   "internal/kafka", run: "TestConsume_SendsAFailedCommitAgain", says: "want 7",
	},
	{
		name:  "a member goes on though its session is over",
		edits: []edit{{"internal/kafka/generation.go", "		case evicted(err), time.Since(heard) >= sessionTimeout:\n", "		case evicted(err):\n"}},
		pkg:   "internal/kafka", run: "TestConsume_EndsClaimsWhenTheSessionIsOver", says: "the claim ended after",
	},
	{
		name:  "a broken connection ends the claims of a member",
		edits: []edit{{"internal/kafka/generation.go", "		case evicted(err), time.Since(heard) >= sessionTimeout:\n", "		default:\n"}},
		pkg:   "internal/kafka", run: "TestConsume_SurvivesHalfOpen", says: "the claim",
	},
	{
		name:  "a leader believes the version of the metadata of older members",
		edits: []edit{{"internal/kafka/group.go", "protocol.Unmarshal(member.Metadata, 0, &", "protocol.Unmarshal(member.Metadata, 1, &"}},
		pkg:   "internal/kafka", run: "TestConsume_OldAndNewMembers/embedded", says: "partitions are unread",
	},
	{
		name:  "one damaged answer counts as a damaged log",
		edits: []edit{{"internal/kafka/fetch.go", "	corruptTries = 3\n", "	corruptTries = 1\n"}},
		pkg:   "pipeline", run: "TestReadEvents_OneDamagedAnswer", says: "of 20 events",
	},
}
