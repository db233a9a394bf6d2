package mutants

// compensatorMutants are mistakes in the sweep, in its lock, and in the handling of
// losses.
var compensatorMutants = []mutant{
	{
		name:  "a sweep reports every missed order as closer_behind",
		edits: []edit{{"internal/ops/cause_decide.go", "	case s.Topic.Kind != KindBucket:\n", "	case s.Topic != nil:\n"}},
		pkg:   "internal/ops", run: "TestDecide", says: "want relay_behind",
	},
	{
		name:  "a late payment that a question after the close finds is not recorded",
		edits: []edit{{"pipeline/recheck.go", "	for i, r := range requests {\n		recorded", "	for i, r := range requests[:0] {\n		recorded"}},
		pkg:   "pipeline", run: "TestRecheck_", says: "late payments of [], want",
	},
	{
		name:  "closed orders are not asked about if no compensator ran at their time",
		edits: []edit{{"compensator/recheck.go", "	if from.IsZero() ||", "	if from.Before(to.Add(-time.Hour)) ||"}},
		pkg:   "compensator", run: "TestRecheck_CatchesUp", says: "times about",
	},
	{
		name:  "a lock is not extended",
		edits: []edit{{"compensator/lock.go", "timer := time.NewTimer(o.Extend)", "timer := time.NewTimer(1000 * o.Expiry)"}},
		pkg:   "compensator", run: "TestLock_", says: "two have it",
	},
	{
		name:  "a process that cannot count overdue orders keeps others from counting",
		edits: []edit{{"pipeline/measure.go", "if next, err := c.once(ctx); err != nil || !retry.Sleep(ctx, next) {", "if next, err := c.once(ctx); !retry.Sleep(ctx, next) {"}},
		pkg:   "pipeline", run: "TestOrderCounter_GivesTheLockBack", says: "the processes",
	},
	{
		name:  "a sweep continues after its lock is lost",
		edits: []edit{{"compensator/lock.go", "	err := work(held)\n", "	err := work(ctx)\n"}},
		pkg:   "compensator", run: "TestLock_", says: "the work goes on",
	},
	{
		name:  "a lock key without expiry stops every sweep",
		edits: []edit{{"compensator/locks.go", "	case ttl == never:\n", "	case ttl == never && false:\n"}},
		pkg:   "compensator", run: "AStuckLock", says: "0 sweeps in a day",
	},
	{
		name:  "a Redis that refuses writes counts as available",
		edits: []edit{{"compensator/locks.go", "l.o.Client.Set(ctx, l.o.Key+\":probe\", 1, l.o.Expiry).Err()", "l.o.Client.Ping(ctx).Err()"}},
		pkg:   "compensator", run: "TestLock_ARedisThatOnlyAnswers", says: "<nil>, want",
	},
	{
		name:  "a lost connection to the database does not lose the lock",
		edits: []edit{{"compensator/locks.go", "		return fmt.Errorf(\"%w: %w\", ErrLockLost, err) //", "		return nil //"}},
		pkg:   "compensator", run: "TestDatabaseLock_TheWorkEnds", says: "the work goes on",
	},
	{
		name:  "a sweep does not leave the grace to the pipeline",
		edits: []edit{{"compensator/sweep.go", "now.Add(-c.o.Grace)", "now"}},
		pkg:   "compensator", run: "TestSweep_LeavesTheGrace", says: "Cutoff:2000",
	},
	{
		name:  "a sweep asks about each order of a paused category",
		edits: []edit{{"compensator/sweep.go", "		if s.paused.has(o.Category, s.asked) {\n", "		if false {\n"}},
		pkg:   "compensator", run: "TestSweep_AsksAboutFewOrders", says: "asked about 2000",
	},
	{
		name:  "one order that a service holds pauses its category",
		edits: []edit{{"compensator/sweep.go", " && s.o.PausesCategories {", " {"}},
		pkg:   "compensator", run: "TestSweep_APausedOrderSaysNothing", says: "paused 1",
	},
	{
		name:  "a sweep takes a category for paused until its end",
		edits: []edit{{"compensator/paused.go", "now.Add(pausedAgain)", "now.Add(24 * time.Hour)"}},
		pkg:   "compensator", run: "TestSweep_AsksAgain", says: "closed 0",
	},
	{
		name:  "a page on which the store hangs ends the sweep",
		edits: []edit{{"compensator/sweep.go", "	maxSilentPages = 3\n", "	maxSilentPages = 1\n"}},
		pkg:   "compensator", run: "TestSweep_OrdersOnWhichTheStoreHangs", says: "the sweep is given up",
	},
	{
		name:  "each sweep starts again at the pages that the last sweep gave up",
		edits: []edit{{"compensator/sweep.go", "			s.from = last // the next sweep continues here\n", ""}},
		pkg:   "compensator", run: "TestSweep_ContinuesAfter", says: "the sweep is given up",
	},
	{
		name:  "an order without a verdict is forgotten",
		edits: []edit{{"compensator/sweep.go", "			s.unresolved = append(s.unresolved, page[i])\n", ""}},
		pkg:   "compensator", run: "TestSweep_", says: "the sweep ended after",
	},
	{
		name:  "no sweep runs while orders are scheduled again after a loss",
		edits: []edit{{"compensator/listener.go", "	err := l.c.withLock(ctx, l.k.Lock, true, func", "	l.c.busy.Lock()\n	defer l.c.busy.Unlock()\n	err := l.c.withLock(ctx, l.k.Lock, true, func"}},
		pkg:   "compensator", run: "TestListen_SweepsRun", says: "is still open an hour after it was due",
	},
	{
		name:  "a bucket that was added counts as a loss",
		edits: []edit{{"compensator/control.go", "	if i < 0 && lost.empty() {\n", "	if false {\n"}},
		pkg:   "compensator", run: "TestListen_ANewBucket", says: "orders are scheduled again",
	},
	{
		name:  "after a loss, orders beside a draining bucket are not scheduled again",
		edits: []edit{{"compensator/control.go", "			if !larger.Draining {", "			if true {"}},
		pkg:   "compensator", run: "TestControl_ReachesEach", says: "beside a draining bucket",
	},
	{
		name:  "a loss during rescheduling does not restart the rescheduling",
		edits: []edit{{"compensator/listener.go", "	l.rescheduler.restart()\n", ""}},
		pkg:   "compensator", run: "TestListen_ALossDuring", says: "0 of them twice",
	},
	{
		name:  "a finish time in the future keeps sweeps from starting",
		edits: []edit{{"compensator/period.go", " || finished.After(now.Add(s.pollInterval()))", ""}},
		pkg:   "compensator", run: "TestSchedule_", says: "due false, want true",
	},
	{
		name:  "without Redis nobody sweeps",
		edits: []edit{{"compensator/lock.go", "	instead := \"unavailable\"\n", "	instead := \"unavailable\"\n	if err != nil {\n		return err\n	}\n"}},
		pkg:   "compensator", run: "TestRun_WithoutRedis", says: "sweeps in a day without Redis",
	},
	{
		name:  "a sweep whose record cannot be appended is missing in the history",
		edits: []edit{{"compensator/history.go", "		r.keep(waiting, nil)\n", ""}},
		pkg:   "compensator", run: "TestHistory_AFailedAppend", says: "want all, the first one first",
	},
	{
		name:  "a bucket that accepts no records stops the rescheduling of orders",
		edits: []edit{{"compensator/reschedule.go", "			return b.Topic\n", "			return best.Topic\n"}},
		pkg:   "compensator", run: "TestListen_AFailingBucket", says: "of 100 orders are scheduled again",
	},
	{
		name:  "a call of a sweep has no time limit",
		edits: []edit{{"compensator/calls.go", "context.WithTimeout(ctx, callTimeout)", "context.WithTimeout(ctx, 10000*callTimeout)"}},
		pkg:   "compensator", run: "TestRun_ACallWithoutAnswer", says: "100 orders are open",
	},
	{
		name:  "a sweep waits forever for a call that ignores its context",
		edits: []edit{{"compensator/calls.go", "		c.onHang(what", "		a := <-answers\n		return a.result, a.err\n		c.onHang(what"}},
		pkg:   "compensator", run: "TestSweep_ACallThatIgnores", says: "deadlock",
	},
	{
		name:  "a store that returns the same pages again is asked for them forever",
		edits: []edit{{"compensator/calls.go", "o.ID == c.known.ID && o.Due.Equal", "false && o.Due.Equal"}},
		pkg:   "compensator", run: "TestSweep_EndsIfAPage", says: "want an error about of an earlier page",
	},
}
