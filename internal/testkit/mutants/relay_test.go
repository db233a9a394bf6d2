package mutants

// relayMutants are mistakes in the relay, which forwards records from bucket to
// bucket and to the close topic.
var relayMutants = []mutant{
	{
		name:  "a partition of the close topic without a leader delays the others",
		edits: []edit{{"internal/partition/appends.go", "	if len(own) == len(records) && !l.split[topic] {\n", "	if parts != nil {\n		own = records\n"}},
		pkg:   "delayrelay", run: "TestRelay_AClosePartition", says: "of the healthy partition were appended, the latest",
	},
	{
		name:  "the relay commits before the ack",
		edits: []edit{{"delayrelay/forward.go", "		h.loop.SendNow(h.o.CloseTopic, toClose, h.handleForwarded)\n", "		for _, r := range toClose {\n			h.loop.Done(r.Generation, r.Offset)\n		}\n		h.loop.Commit()\n		h.loop.SendNow(h.o.CloseTopic, toClose, h.handleForwarded)\n"}},
		pkg:   "delayrelay", run: "CommitsOnlyAfterTheAck", says: "before an ack",
	},
	{
		name:  "the relay frees the memory of a fetch before its records are appended",
		edits: []edit{{"delayrelay/handler.go", "	h.releaseDue()\n", "	if h.free != nil {\n		h.free()\n		h.free = nil\n	}\n	h.releaseDue()\n"}},
		pkg:   "delayrelay", run: "TestRelay_RecordsDueWhenFetched", says: "in the close topic (-want +got)",
	},
	{
		name:  "the last commit of a shutdown is left out",
		edits: []edit{{"internal/partition/loop.go", "	l.committer.Commit(time.Now(), true)\n", ""}},
		pkg:   "delayrelay", run: "TestRelay_AStopCommits", says: "after the stop, want 2",
	},
	{
		name:  "the relay forwards records that are not due",
		edits: []edit{{"delayrelay/decide.go", "if now >= due {", "if now >= 0 {"}},
		pkg:   "delayrelay", run: "NeverForwardsEarly", says: "before it is due",
	},
	{
		name:  "hops go to the smallest bucket",
		edits: []edit{{"delayrelay/decide.go", "o.Buckets.Pick(milliseconds(due - now)).Topic", "o.Buckets[0].Topic"}},
		pkg:   "delayrelay", run: "TestRelay_ARecordThatIsNotDue", says: "in delay_1m (-want +got)",
	},
	{
		name:  "an unreadable record is dropped",
		edits: []edit{{"delayrelay/handler.go", "		h.loop.DeadLetterUnreadable(*r, err)", "		h.loop.Done(r.Generation, r.Offset)"}},
		pkg:   "delayrelay", run: "TestRelay_AFailingDeadLetterTopic", says: "before the dead letter was appended",
	},
	{
		name:  "a relay rarely looks ahead",
		edits: []edit{{"delayrelay/decide.go", "	maxUnseen       = time.Minute\n", "	maxUnseen       = 24 * time.Hour\n"}},
		pkg:   "delayrelay", run: "TestRelay_AProducerWithAnEarlierList", says: "an order of six minutes was",
	},
	{
		name:  "a relay does not notice for long that a log was replaced",
		edits: []edit{{"delayrelay/decide.go", "	maxUnseen       = time.Minute\n", "	maxUnseen       = 24 * time.Hour\n"}},
		pkg:   "delayrelay", run: "TestRelay_ReadsALogRecreated", says: "notices of losses after",
	},
	{
		name:  "a full window takes records that leave later than those it dropped",
		edits: []edit{{"delayrelay/handler.go", "	if h.dropped.any && release >= h.dropped.release {\n", "	if false {\n"}},
		pkg:   "delayrelay", run: "TestRelay_AFullWindowKeepsTheEarliest", says: "late",
	},
	{
		name:  "a full window forgets urgent records that it has not read again yet",
		edits: []edit{{"delayrelay/handler.go", "h.dropped.any && h.loop.NextOffset() >= h.readTo && ", "h.dropped.any && "}},
		pkg:   "delayrelay", run: "TestRelay_AFullWindowReadsAll", says: "the last urgent record was",
	},
	{
		name:  "a window that is nearly empty after a drop reads the dropped records again at once",
		edits: []edit{{"delayrelay/window.go", "		size += w.heap[keep].record.Size()\n", "		if size += w.heap[keep].record.Size(); size > bytes && keep > 0 {\n			break\n		}\n"}},
		pkg:   "delayrelay", run: "TestRelay_AFullWindowDoesNotRead", says: "fetches in 4 s",
	},
	{
		name:  "a maximum delay is refused if it is exceeded by the difference of two clocks",
		edits: []edit{{"order.go", "ahead > max+MaxDelaySlack", "ahead > max"}},
		pkg:   ".", run: "TestValidate_", says: "past the maximum by the clock slack",
	},
	{
		name:  "a replay keeps its record in the memory of a fetch",
		edits: []edit{{"delayrelay/forward.go", "		if fetched {\n			r.Body = h.bodyPool.copy(r.Body)\n		}\n", ""}},
		pkg:   "delayrelay", run: "TestRelay_RecordsDueWhenFetched", says: "in the replay topic (-want +got)",
	},
	{
		name:  "the close topic is waited for without a limit, and hops with it",
		edits: []edit{{"internal/partition/appends.go", "		r = l.sender.Append(ctx, send.Destination{Topic: topic, Partition: l.Claim.Partition}, own)\n", "		r = l.sender.Append(l.Ctx, send.Destination{Topic: topic, Partition: l.Claim.Partition}, own)\n"}},
		pkg:   "delayrelay", run: "AFailingCloseTopicDelays", says: "while the close topic accepts nothing",
	},
	{
		name:  "a hop that is nearly due is sent to a topic that fails",
		edits: []edit{{"delayrelay/forward.go", "	if h.loop.Failing(topic) {\n", "	if h.loop.Failing(topic) && len(records) == 0 {\n"}},
		pkg:   "delayrelay", run: "TestRelay_AFailingDelayTopic", says: "late",
	},
	{
		name:  "an append beside the loop that hangs is not noticed",
		edits: []edit{{"internal/partition/loop.go", "		if !l.appendHangs() {\n			l.Beat()\n		}\n", "		l.Beat()\n"}},
		pkg:   "delayrelay", run: "TestRelay_AbandonsTheProcessWhenAHopHangs", says: "OnHang was not called",
	},
	{
		name:  "the next fetch is planned by an append time in the future",
		edits: []edit{{"delayrelay/decide.go", "earlier(appended, now).Add", "appended.Add"}},
		pkg:   "delayrelay", run: "TestNextFetch_|ABrokerClockSetBack", says: "fetches",
	},
	{
		name:  "an append time in the future keeps a record longer than its bucket",
		edits: []edit{{"delayrelay/decide.go", "end := min(appended, now) + b.Length.Milliseconds()", "end := appended + b.Length.Milliseconds()"}},
		pkg:   "delayrelay", run: "AFutureAppendTimeKeeps", says: "hops after the length of the bucket",
	},
	{
		name:  "a record that is not due hops without a pause",
		edits: []edit{{"delayrelay/decide.go", "		stay = b.Length\n", "		stay = 0\n"}},
		pkg:   "delayrelay", run: "TestRelease_", says: "it stays",
	},
	{
		name:  "the window is not bounded in bytes",
		edits: []edit{{"delayrelay/handler.go", "	if h.window.bytes <= share {\n", "	if h.window.bytes <= share*1000 {\n"}},
		pkg:   "delayrelay", run: "TestRelay_AFullWindow", says: "bytes were in the window",
	},
	{
		name:  "a relay with too many pending dead letters reads on",
		edits: []edit{{"internal/partition/loop.go", "	if l.reader.busy || l.dead.full() {\n", "	if l.reader.busy {\n"}},
		pkg:   "delayrelay", run: "TestRelay_StopsReadingWhileDeadLetters", says: "records of garbage were read",
	},
	{
		name:  "the relay uses the brokers' clock, though the database has another",
		edits: []edit{{"pipeline/roles.go", "		Now:             a.clock.DatabaseNow,", "		Now:             a.clock.Now,"}},
		pkg:   "internal/testkit/simulation", run: "ABrokersClockMakes", says: "at most a second late",
	},
	{
		name:  "the relay uses its local clock",
		edits: []edit{{"pipeline/roles.go", "		Now:             a.clock.DatabaseNow,", "		Now:             a.o.Now,"}},
		pkg:   "internal/testkit/simulation", run: "ARelayWhoseClockIsAhead", says: "in the close topic before they were due",
	},
	{
		name:  "a process does not start while an optional topic is missing",
		edits: []edit{{"pipeline/roles.go", "	return part{Relay, []need{a.needKafka(), a.needTopic(c.Topics.Close)},", "	return part{Relay, []need{a.needKafka(), a.needTopic(c.Topics.Close), a.needTopic(c.Topics.Replay)},"}},
		pkg:   "internal/testkit/simulation", run: "ARestartBeforeTopicsApply", says: "is unpaid",
	},
}
