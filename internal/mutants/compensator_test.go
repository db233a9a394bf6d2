package mutants

// compensatorMutants are mistakes in the sweep, its lock, and what follows a loss.
var compensatorMutants = []mutant{
	{
		name:  "a sweep says that a closer is behind, whatever it sees",
		edits: []edit{{"internal/cause/decide.go", "	case s.Kind != story.Bucket:\n", "	case s.Topic != \"\":\n"}},
		pkg:   "internal/cause", run: "TestDecide", says: "want relay_behind",
	},
	{
		name:  "a lock is not extended",
		edits: []edit{{"compensator/lock.go", "timer := time.NewTimer(l.o.Extend)", "timer := time.NewTimer(1000 * l.o.Expiry)"}},
		pkg:   "compensator", run: "TestLock_", says: "two have it",
	},
	{
		name:  "a sweep goes on when its lock is lost",
		edits: []edit{{"compensator/lock.go", "	err := work(held)\n", "	err := work(ctx)\n"}},
		pkg:   "compensator", run: "TestLock_", says: "the work goes on",
	},
	{
		name:  "a lock key without expiry stops every sweep",
		edits: []edit{{"compensator/lock.go", "	case ttl == never:\n", "	case ttl == never && false:\n"}},
		pkg:   "compensator", run: "ALockThatNoProcessHolds", says: "0 sweeps in a day",
	},
	{
		name:  "a sweep does not leave the grace to the pipeline",
		edits: []edit{{"compensator/sweep.go", "now.Add(-c.o.Grace)", "now"}},
		pkg:   "compensator", run: "TestSweep_LeavesTheGrace", says: "Cutoff:2000",
	},
	{
		name:  "a page on which the store hangs ends the sweep",
		edits: []edit{{"compensator/sweep.go", "	maxSilent = 3\n", "	maxSilent = 1\n"}},
		pkg:   "compensator", run: "TestSweep_OrdersOnWhichTheStoreHangs", says: "the sweep is given up",
	},
	{
		name:  "each sweep begins at the pages that the last one gave up",
		edits: []edit{{"compensator/sweep.go", "			s.from = last // the next sweep goes on here\n", ""}},
		pkg:   "compensator", run: "TestSweep_GoesOnBehind", says: "the sweep is given up",
	},
	{
		name:  "an order without a verdict is forgotten",
		edits: []edit{{"compensator/sweep.go", "			s.left = append(s.left, page[i])\n", ""}},
		pkg:   "compensator", run: "TestSweep_", says: "failed",
	},
	{
		name:  "scheduling orders again after a loss keeps sweeps out",
		edits: []edit{{"compensator/lost.go", "	err := l.guarded(ctx, l.k.Lock, true, func", "	l.busy.Lock()\n	defer l.busy.Unlock()\n	err := l.guarded(ctx, l.k.Lock, true, func"}},
		pkg:   "compensator", run: "TestListen_SweepsGoOn", says: "is still open an hour after it was due",
	},
	{
		name:  "a bucket that was added counts as a loss",
		edits: []edit{{"compensator/lost.go", "	if lost.Last < lost.First && !l.k.knows(lost.Topic) {\n", "	if false {\n"}},
		pkg:   "compensator", run: "TestListen_ABucketThatIsAdded", says: "orders are scheduled again",
	},
	{
		name:  "a loss that is heard of while orders are scheduled again is not made up for",
		edits: []edit{{"compensator/lost.go", "	l.lost.until = time.Time{} // what was scheduled again may be lost now\n", ""}},
		pkg:   "compensator", run: "TestListen_ALossWhile", says: "0 of them twice",
	},
	{
		name:  "a sweep that a wrong clock noted in the future keeps others from beginning",
		edits: []edit{{"compensator/period.go", " || finished.After(now.Add(s.ask()))", ""}},
		pkg:   "compensator", run: "TestSchedule_", says: "due false, want true",
	},
	{
		name:  "without Redis nobody sweeps",
		edits: []edit{{"compensator/lock.go", "	instead := \"unavailable\"\n", "	instead := \"unavailable\"\n	if err != nil {\n		return err\n	}\n"}},
		pkg:   "compensator", run: "TestRun_WithoutRedis", says: "sweeps in a day without Redis",
	},
	{
		name:  "a bucket that accepts nothing keeps orders from being scheduled again",
		edits: []edit{{"compensator/reschedule.go", "l.avoided.pick(l.k.Buckets(), remaining).Topic", "l.k.Buckets().Pick(remaining).Topic"}},
		pkg:   "compensator", run: "TestListen_ABucketThatAcceptsNothing", says: "of 100 orders are scheduled again",
	},
}
