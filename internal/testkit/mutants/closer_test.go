package mutants

// closerMutants are mistakes in the closer and the release worker.
var closerMutants = []mutant{
	{
		name:  "a replay counts as a late close of the pipeline",
		edits: []edit{{"closer/transaction.go", "		closes = t.metrics.replays\n", "		closes = t.metrics.Closes\n"}},
		pkg:   "closer", run: "TestCloser_ReplaysHaveALateness", says: "replay: 0 closed",
	},
	{
		name:  "the closer commits before the close",
		edits: []edit{{"closer/handler.go", "	for len(requests) > 0 && h.loop.Ctx.Err() == nil {\n", "	for _, e := range batch {\n		h.loop.Done(e.message.Generation, e.message.Offset)\n	}\n	h.loop.Commit()\n	for len(requests) > 0 && h.loop.Ctx.Err() == nil {\n"}},
		pkg:   "closer", run: "TestCloser_CommitsNothingWhileTheDatabaseIsDown", says: "want nothing",
	},
	{
		name:  "transactions that wait for a lock keep all others waiting",
		edits: []edit{{"closer/batcher.go", "		case !g.slow:\n", "		default:\n"}},
		pkg:   "closer", run: "TestBatcher_", says: "want all 4 workers",
	},
	{
		name:  "replays take the workers of fresh orders",
		edits: []edit{{"closer/batcher.go", "used.replays == 0", "used.replays >= 0"}},
		pkg:   "closer", run: "TestBatcher_OneWorkerServesReplays", says: "replays use 4 of 4 workers",
	},
	{
		name:  "the record of an order that is never closed goes on",
		edits: []edit{{"closer/decide.go", "if orderclose.IsNever(o.Due) {", "if o.OrderID == \"\" {"}},
		pkg:   "closer", run: "TestDecide_SettlesAnOrderThatIsNeverClosed", says: "its record goes on",
	},
	{
		name:  "an order is retried without end",
		edits: []edit{{"closer/decide.go", "if r.Attempt < maxOrderRetries {", "if r.Attempt >= 0 {"}},
		pkg:   "closer", run: "TestDecide_", says: "after three tries",
	},
	{
		name:  "a payment that stays unknown is asked about without end",
		edits: []edit{{"closer/decide.go", "	if waited >= paymentTimeout {", "	if waited >= 1000*paymentTimeout {"}},
		pkg:   "closer", run: "TestDecide_", says: "not given up after",
	},
	{
		name:  "orders that wait in memory are not bounded in records",
		edits: []edit{{"closer/buffer.go", "return len(b.parked) < records && b.parkedBytes", "return b.parkedBytes"}},
		pkg:   "closer", run: "TestBuffer_HasRoom", says: "orders have room in",
	},
	{
		name:  "orders that wait in memory are not bounded in bytes",
		edits: []edit{{"closer/buffer.go", "return len(b.parked) < records && b.parkedBytes+e.size() <= bytes", "return len(b.parked) < records"}},
		pkg:   "closer", run: "TestBuffer_HasRoom", says: "orders have room in",
	},
	{
		name:  "an order without a verdict is settled",
		edits: []edit{{"closer/decide.go", "	if o.Verdict == \"\" && o.Err != nil {\n		return decision{action: park,", "	if o.Verdict == \"\" && o.Err != nil {\n		return decision{action: settle,"}},
		pkg:   "closer", run: "OrdersThatMakeTheStoreHang", says: "0 retried",
	},
	{
		name:  "a deadline that moved keeps the old counts of failures",
		edits: []edit{{"closer/decide.go", "		r.NotDue, r.Attempt, r.Cause, r.PendingSince, r.Origin = 0, 0, \"\", time.Time{}, wire.Origin{}\n", ""}},
		pkg:   "closer", run: "TestNotDue_", says: "(-want +got)",
	},
	{
		name:  "orders with locked rows delay due orders",
		edits: []edit{{"closer/buffer.go", "max(limit-len(ready), (limit+1)/2)", "limit-len(ready)"}},
		pkg:   "closer", run: "TestBuffer_|LockedRowsDelay", says: "were taken, want",
	},
	{
		name:  "a closer with too many pending dead letters reads on",
		edits: []edit{{"internal/partition/loop.go", "	if l.reader.busy || l.dead.full() {\n", "	if l.reader.busy {\n"}},
		pkg:   "closer", run: "StopsReadingWhileDeadLetters", says: "records of garbage were read",
	},
	{
		name:  "a retry of the closer keeps the bucket of its first append",
		edits: []edit{{"closer/retries.go", "	for _, record := range sent.Left {\n		h.retry(record)\n", "	for _, record := range sent.Left {\n		h.retries.add(sent.Topic, record)\n"}, {"closer/retries.go", "	h.repick(now)\n", ""}},
		pkg:   "closer", run: "ARetryPicksItsBucketAgain", says: "left, want it in",
	},
	{
		name:  "a panic of the store counts as an outage",
		edits: []edit{{"internal/bisect/search.go", "r.store.CloseOrders(ctx, r.path, part)\n		return err\n	})\n", "r.store.CloseOrders(ctx, r.path, part)\n		return err\n	})\n	if _, is := errors.AsType[*retry.PanicError](err); is {\n		err = errors.Join(orderclose.ErrUnavailable, err)\n	}\n"}},
		pkg:   "closer", run: "APanicOfTheStore", says: "retried (-want +got)",
	},
	{
		name:  "an order on which the store waits without end holds up its partition for ever",
		edits: []edit{{"internal/bisect/search.go", "context.WithTimeout(ctx, limit)", "context.WithCancel(ctx)"}},
		pkg:   "closer", run: "ACallWithoutAnEnd", says: "of the 100 other orders were closed",
	},
	{
		name:  "calls of the store that ignore their context end all closing in silence",
		edits: []edit{{"closer/transaction.go", "partition.WatchCall(g.ctx, t.onHang)", "partition.WatchCall(g.ctx, func() {})"}},
		pkg:   "closer", run: "ACallThatIgnoresItsContext", says: "the first call of OnHang",
	},
	{
		name:  "calls of the stock service that ignore their context end all releases in silence",
		edits: []edit{{"release/worker.go", "			w.o.OnHang(\"a call", "			_ = (\"a call"}},
		pkg:   "release", run: "ACallThatIgnoresItsContext", says: "OnHang was called 0 times",
	},
	{
		name:  "every paused order asks the database every two seconds",
		edits: []edit{{"closer/decide.go", "wait := addJitter(min(max(at.Sub(r.Order.Due), blockedWait), pausedMax), jitter)", "wait := pausedWait"}},
		pkg:   "closer", run: "PausedOrdersDoNotLoad", says: "in 50 s the store was asked about",
	},
	{
		name:  "the orders of a category wait on when its pause has ended",
		edits: []edit{{"closer/paused.go", "		h.buffer.wakePaused(category, now)\n", ""}},
		pkg:   "closer", run: "PausedOrdersDoNotLoad", says: "after the pause of a category",
	},
	{
		name:  "a mistake of time zones goes unnoticed",
		edits: []edit{{"closer/outcome.go", "zoneShift(order.Due, o.Due); shift != 0 {", "zoneShift(order.Due, o.Due); shift > 24*time.Hour {"}, {"closer/outcome.go", "	\"math/rand/v2\"\n", "	\"math/rand/v2\"\n	\"time\"\n"}},
		pkg:   "closer", run: "DueTimesOfAnotherZone", says: "orders are later in the database",
	},
	{
		name:  "a closer reads on while no bucket accepts its retries",
		edits: []edit{{"closer/handler.go", " && !h.retries.full() {", " {"}},
		pkg:   "closer", run: "RetriesInMemoryAreBounded", says: "orders were tried",
	},
	{
		name:  "a closer waits for the bucket that its retries go to",
		edits: []edit{{"closer/retries.go", "		h.loop.Send(topic, records, h.handleSent)\n", "		h.loop.SendNow(topic, records, h.handleSent)\n"}},
		pkg:   "closer", run: "FailingBucketsDelay", says: "after it was due",
	},
	{
		name:  "a slow store is taken for one that hangs",
		edits: []edit{{"closer/handler.go", "h.replay, h.loop.Beat)", "h.replay, func() {})"}},
		pkg:   "closer", run: "ASlowStoreIsNotAHang", says: "partition loop hangs",
	},
	{
		name:  "a failed replay returns to the lane of fresh orders",
		edits: []edit{{"closer/handler.go", "			e.record.Lane = wire.LaneReplay\n", ""}},
		pkg:   "closer", run: "ARetryOfAReplay", says: "lane is",
	},
	{
		name:  "a dead letter has no coordinates of its record",
		edits: []edit{{"internal/wire/deadletter.go", "	dead.add(HeaderSourceOffset, strconv.FormatInt(m.Offset, 10))\n", ""}},
		pkg:   "internal/wire", run: "DeadLetter", says: "(-want +got)",
	},
	{
		name:  "an event on which the stock service hangs is never given up",
		edits: []edit{{"release/attempt.go", "			e.skipped, e.err = false, err\n", "			e.err = err\n"}},
		pkg:   "release", run: "TestWorker_HangingEvents", says: "dead letters (-want +got)",
	},
	{
		name:  "a call that is cancelled by a stop counts as a failure of the stock service",
		edits: []edit{{"release/worker.go", "		if err != nil && ctx.Err() != nil { //", "		if err != nil && !made { //"}},
		pkg:   "release", run: "TestWorker_ACallThatIsCancelled", says: "breaker ",
	},
	{
		name:  "an order for which the payment provider has no answer keeps others pending",
		edits: []edit{{"closer/payment/inquiry.go", "err = retry.WithCauses(q.lastErr, orderclose.ErrUnavailable)", "err = orderclose.ErrNoOrderAtFault"}},
		pkg:   "closer/payment", run: "TestAsking_AnOrderWithoutAnAnswerDoesNotKeepOthersPending", says: "status 0, bad: false",
	},
	{
		name:  "the payment provider is asked about a paused category",
		edits: []edit{{"internal/store/payorders.go", "	if path != \"\" {\n", "	if path == \"no path\" {\n"}},
		pkg:   "closer/payment", run: "TestAsking_APausedCategoryIsNotAskedAbout", says: "the provider was asked for",
	},
	{
		name:  "an order is closed before its payments are cancelled",
		edits: []edit{{"closer/payment/asking.go", "	q := &inquiry{", "	if _, err := a.o.Store.CloseOrders(ctx, path, open); err != nil {\n		return nil, err\n	}\n	q := &inquiry{"}},
		pkg:   "closer/payment", run: "TestCancel_ClosesOnlyOrders", says: "when its payments are cancelled",
	},
	{
		name:  "the payments of an order are cancelled before it is due",
		edits: []edit{{"closer/payment/asking.go", "		if o.Verdict == orderclose.Closed {\n", "		if o.Verdict == orderclose.Closed || o.Verdict == orderclose.NotDue {\n"}},
		pkg:   "closer/payment", run: "TestCancel_ClosesOnlyOrders", says: "payments of these orders were cancelled (-want +got)",
	},
	{
		name: "the answer unpaid to a cancel closes the order",
		edits: []edit{
			{"closer/payment/asking.go", "		if answer != Paid && answer != a.closes {\n", "		if answer != Paid && answer != Unpaid && answer != Cancelled {\n"},
			{"closer/payment/inquiry.go", "		case q.checked.closes:\n", "		case Unpaid, Cancelled:\n"},
		},
		pkg: "closer/payment", run: "TestCancel_ClosesOnlyOrders|TestHTTP_AServiceThatIgnores", says: "payment_pending",
	},
	{
		name:  "an order that stays open after its payments were cancelled is not reported",
		edits: []edit{{"closer/payment/unclosed.go", "		case tried:\n", "		case tried && v != \"\":\n"}},
		pkg:   "closer/payment", run: "TestCancel_TheTimeOfTheOldest", says: "a fails: since ",
	},
	{
		name:  "a release time is taken from a wrong clock",
		edits: []edit{{"closer/decide.go", "	if tooOften || at.Sub(o.At).Abs() > wrongClockSkew {\n", "	if tooOften {\n"}},
		pkg:   "closer", run: "TestNotDue_WaitsInMemory", says: "remain: {action:",
	},
	{
		name:  "a relay that releases too early and the closer send a record in circles",
		edits: []edit{{"closer/decide.go", "	if tooOften || at.Sub", "	if _ = tooOften; at.Sub"}},
		pkg:   "closer", run: "TestNotDue_NeverComesBack", says: "without one in memory",
	},
	{
		name:  "a retry is scheduled by a wrong clock",
		edits: []edit{{"closer/outcome.go", "	if clockWrong {\n", "	if clockWrong && false {\n"}},
		pkg:   "closer", run: "TestCloser_ARetryOfABacklogWaits", says: "is tried again after",
	},
}
