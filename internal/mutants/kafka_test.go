package mutants

// kafkaMutants are mistakes in what is between the parts and Kafka: connections,
// metadata, fetches, the identity of a log, and the brokers' clock.
var kafkaMutants = []mutant{
	{
		name:  "a new connection to Kafka has no deadline",
		edits: []edit{{"internal/kafka/connect.go", "	limited, cancel := context.WithTimeout(ctx, connectTimeout)\n", "	limited, cancel := context.WithCancel(ctx)\n"}},
		pkg:   "internal/kafka", run: "TestConsume_ASilent", says: "the membership took",
	},
	{
		name:  "a broker that does not answer is tried again and again",
		edits: []edit{{"internal/kafka/connect.go", "		c.next.CompareAndSwap(at, at+1) // every later attempt begins at another broker\n", ""}},
		pkg:   "internal/kafka", run: "TestConsume_ASilent|TestPing", says: "the membership took",
	},
	{
		name:  "the metadata of every topic of the cluster is asked for",
		edits: []edit{{"internal/kafka/topology.go", "	res, err := t.ask(ctx, asked)\n", "	res, err := t.ask(ctx, nil)\n"}},
		pkg:   "internal/kafka", run: "TestCluster_AsksOnlyAboutItsOwnTopics", says: "asked about (-want +got)",
	},
	{
		name:  "a leader that has moved is asked until its metadata is old",
		edits: []edit{{"internal/kafka/topology.go", "			known.suspect = true\n", ""}},
		pkg:   "internal/kafka", run: "TestCluster_ALeaderMove", says: "noticed after",
	},
	{
		name:  "only a log that is shorter than before is taken to be another one",
		edits: []edit{{"internal/kafka/fetch.go", "	if at.Log.Topic != noTopicID {\n		return at, nil\n	}\n", "	if at.Offset >= 0 {\n		at.Log = orderclose.LogID{Epoch: -1}\n		return at, nil\n	}\n"}},
		pkg:   "internal/kafka", run: "TestRead_ARecreatedTopic", says: "Replaced:false",
	},
	{
		name:  "a log that has lost its end is read from its start",
		edits: []edit{{"internal/kafka/identity.go", "		next = min(max(first, offset), at.Offset, end)\n", "		next = min(first, offset)\n"}},
		pkg:   "internal/kafka", run: "TestRead_ATruncatedLog", says: "none is of this moment",
	},
	{
		name:  "batches beyond the end that an answer names are called corrupt",
		edits: []edit{{"internal/kafka/fetch.go", "	if f.Corrupt == nil {\n		return f, nil\n	}\n", "	if f.Corrupt == nil || raw != nil {\n		return f, nil\n	}\n"}},
		pkg:   "internal/kafka", run: "TestRead_AHealthyBatch", says: "corrupt",
	},
	{
		name:  "the checksum of a batch is not compared",
		edits: []edit{{"internal/kafka/batch.go", "castagnoli); want != have {", "castagnoli); want != have && false {"}},
		pkg:   "internal/kafka", run: "TestSplit_ADamaged", says: "corrupt <nil>",
	},
	{
		name:  "a partition that was added counts as a loss",
		edits: []edit{{"internal/kafka/group.go", "		is = added\n", "		is = nothing\n"}},
		pkg:   "internal/kafka", run: "TestConsume_AnAddedPartition", says: "partitions were added",
	},
	{
		name:  "the brokers' time follows a local clock that is set",
		edits: []edit{{"internal/kafka/clock.go", "	return asked.broker.Add(now.mono - asked.local.mono)\n", "	return now.wall.Add(asked.offset())\n"}},
		pkg:   "internal/kafka", run: "TestBrokerClock_IsNotMoved", says: "it says",
	},
	{
		name:  "an append time that does not fit the estimate of the brokers' clock is ignored",
		edits: []edit{{"internal/kafka/clock.go", "			d = min(d, stepEvery)\n", ""}},
		pkg:   "internal/kafka", run: "TestBrokerClock_AsksSoon", says: "it rests for 30s",
	},
	{
		name:  "of the possible offsets of the brokers' clock the earliest close is believed",
		edits: []edit{{"internal/kafka/clock.go", "	return least\n}", "	return most\n}"}},
		pkg:   "internal/kafka", run: "TestOffsetOf_", says: "and it is",
	},
	{
		name:  "a read to the end of a span goes on in a log that was recreated",
		edits: []edit{{"internal/kafka/window.go", "		if f.Replaced {\n			return at", "		if f.Replaced && f.Next > s.End {\n			return at"}},
		pkg:   "internal/kafka", run: "TestScan_", says: "has become shorter",
	},
	{
		name:  "a commit of a topic that was deleted is taken for one of the new topic",
		edits: []edit{{"internal/kafka/commits.go", "		commits[i].OldLog = of != id\n", "		commits[i].OldLog = of == noTopicID\n"}},
		pkg:   "internal/kafka", run: "TestCommits_OfAnOldLog", says: "OldLog:false",
	},
	{
		name:  "partitions of a recreated topic count as added to the old one",
		edits: []edit{{"internal/kafka/group.go", "	return of == noTopicID || id == noTopicID || of == id\n", "	return len(of) == len(id)\n"}},
		pkg:   "internal/kafka", run: "TestConsume_AnAddedPartition", says: "the topic was recreated",
	},
	{
		name:  "each idle connection to a broker that hangs costs a deadline",
		edits: []edit{{"internal/kafka/connect.go", "		conn = c.peers.join(conn, address, c.hangs)\n", ""}},
		pkg:   "internal/kafka", run: "TestCluster_ABrokerThatHangs", says: "appended after",
	},
}
