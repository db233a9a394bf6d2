package mutants

// partitionMutants are mistakes in the shared parts of all partition loops: the
// watermark, the reader, the appends, and the dead letters.
var partitionMutants = []mutant{
	{
		name:  "a topic that was recreated before anybody read it has lost nothing",
		edits: []edit{{"internal/partition/deadletters.go", "		n = max(1, n)\n", ""}},
		pkg:   "internal/partition", run: "TestLoop_ALossCounts", says: "0 waited, want 1",
	},
	{
		name:  "the watermark passes an offset that is not done",
		edits: []edit{{"internal/partition/watermark.go", "n < len(w.open) && w.open[n].state == done", "n < len(w.open)"}},
		pkg:   "internal/partition", run: "TestWatermark_", says: "low is",
	},
	{
		name:  "records that a former owner acked above its commit are repeated",
		edits: []edit{{"internal/partition/committer.go", "	w.doneAhead = wire.DecodeRuns(claim.Offset, claim.Acked)\n", ""}},
		pkg:   "internal/partition", run: "ATakeOverRepeatsNothing", says: "to be processed true, was done true",
	},
	{
		name:  "the list of done records does not fit into a commit",
		edits: []edit{{"internal/wire/commit.go", "const maxRunBytes = 4000", "const maxRunBytes = 5000"}},
		pkg:   "internal/wire", run: "TestRuns_|TestDone_", says: "bytes, epoch",
	},
	{
		name:  "pending dead letters are bounded in bytes only",
		edits: []edit{{"internal/partition/deadletters.go", "d.records >= maxDeadLetters || d.bytes >= maxDeadLetterBytes", "d.bytes >= maxDeadLetterBytes"}},
		pkg:   "internal/partition", run: "TestDeadLetters_IsFull", says: "small: full with",
	},
	{
		name:  "pending dead letters are bounded in records only",
		edits: []edit{{"internal/partition/deadletters.go", " || d.bytes >= maxDeadLetterBytes", ""}},
		pkg:   "internal/partition", run: "TestDeadLetters_IsFull", says: "large: full with",
	},
	{
		name:  "dead letters of one partition that fails are forgotten",
		edits: []edit{{"internal/partition/deadletters.go", "append(d.waiting, r.Left...), time.Now()", "d.waiting, time.Now()"}},
		pkg:   "internal/partition", run: "TestSend_RecordsOfAMissing", says: "want each once",
	},
	{
		name:  "an answer about a record of a recreated log marks an offset of the new one",
		edits: []edit{{"internal/partition/committer.go", "return generation == c.gen", "return true"}},
		pkg:   "internal/partition", run: "TestCommitter_ARecordOfTheOldLog", says: "by records of the old log",
	},
	{
		name:  "a dead letter does not know the log of its record",
		edits: []edit{{"internal/partition/deadletters.go", "	dead.Offset, dead.Generation = m.Offset, m.Generation\n", "	dead.Offset = m.Offset\n"}},
		pkg:   "internal/partition", run: "TestDeadLetters_ADeadLetterKeeps", says: "is of generation",
	},
	{
		name:  "a record that was taken ahead is processed again in its turn",
		edits: []edit{{"internal/partition/watermark.go", "	fresh = !isDone && (len(w.taken) == 0 || offset < w.taken[0])\n", "	fresh = !isDone\n"}},
		pkg:   "internal/partition", run: "TestWatermark_WhatIsTakenAhead", says: "is fresh true, want false",
	},
	{
		name:  "a list of done records is applied to another log",
		edits: []edit{{"internal/partition/reader.go", "	if r.formerEnd > 0 {\n", "	if r.formerEnd < 0 {\n"}},
		pkg:   "internal/partition", run: "VerifiesTheFormerOwnersRuns", says: "Replaced:false",
	},
	{
		name:  "an append in a loop has no time limit",
		edits: []edit{{"internal/partition/appends.go", "	if f.sender == l.patient {\n", "	if f.sender != nil {\n"}},
		pkg:   "internal/partition", run: "TestSend_APartition", says: "after 1h0m0s",
	},
	{
		name:  "another append is begun after the partition was revoked",
		edits: []edit{{"internal/send/sender.go", "		if ctx.Err() != nil {\n			return ctx.Err()\n		}\n		if end,", "		if end,"}},
		pkg:   "internal/send", run: "TestAppend_StartsNothing", says: "want the one that was in flight",
	},
	{
		name:  "all records of a refused request become dead letters",
		edits: []edit{{"internal/send/sender.go", "	case len(records) == 1:\n		r.Refused = append(r.Refused, Refusal{records[0], err})\n		return 1, nil\n", "	case len(records) > 0:\n		for _, one := range records {\n			r.Refused = append(r.Refused, Refusal{one, err})\n		}\n		return len(records), nil\n"}},
		pkg:   "internal/partition", run: "TestSend_OnlyRefusedRecords", says: "appended (-want +got)",
	},
	{
		name:  "a partition without a leader holds up the others of its topic",
		edits: []edit{{"internal/partition/appends.go", "		for p, part := range parts {\n			// The loop may have been busy since the look-up.\n			l.sendPart(flight{s, time.Now()}, send.Destination{Topic: topic, Partition: p}, part, then)\n		}\n", "		for p, part := range parts {\n			ctx, cancel := l.limit(flight{s, time.Now()})\n			then(s.Append(ctx, send.Destination{Topic: topic, Partition: p}, part))\n			cancel()\n		}\n"}},
		pkg:   "internal/partition", run: "TestSend_APartition", says: "Send: acked after 5s",
	},
	{
		name:  "a topic that accepts no records is tried in each turn",
		edits: []edit{{"internal/send/health.go", "f.busy, f.until, r.Pause = false, now.Add(f.rest), f.rest", "f.busy, f.until, r.Pause = false, now, f.rest"}},
		pkg:   "internal/send", run: "TestAppend_AfterAFailure", says: "while the partition rests",
	},
	{
		name:  "a position is committed before its loss is published",
		edits: []edit{{"internal/partition/deadletters.go", "	l.committer.Hold()\n", ""}},
		pkg:   "delayrelay", run: "TestRelay_ContinuesAtTheLogStart|TestRelay_AFailingControlTopic", says: "before the notice of the loss was appended",
	},
	{
		name:  "a loop that hangs is not noticed",
		edits: []edit{{"internal/partition/watchdog.go", "			if p.Silent() <= stuckAfter {\n", "			if p.Silent() <= 1000*stuckAfter {\n"}},
		pkg:   "internal/partition", run: "TestWatchdog_", says: "stuck 0 times",
	},
	{
		name:  "a loop that was stopped with its process counts as hanging",
		edits: []edit{{"internal/partition/watchdog.go", "	for silent := 0; silent < 2; {\n", "	for silent := 0; silent < 1; {\n"}},
		pkg:   "internal/partition", run: "TestWatchdog_", says: "abandoned",
	},
	{
		name:  "a loop that hangs is started again from where its claim began",
		edits: []edit{{"internal/partition/watchdog.go", "		claim = next\n", "		claim.Done = done\n"}},
		pkg:   "internal/partition", run: "TestWatchdog_", says: "want 2 and 1",
	},
	{
		name:  "an owner that was stopped for long does not confirm its claim",
		edits: []edit{{"internal/partition/loop.go", "	return !late || l.Claim.Confirm == nil ||", "	return late || !late || l.Claim.Confirm == nil ||"}},
		pkg:   "delayrelay", run: "AfterAPause", says: "record moved: true",
	},
}
