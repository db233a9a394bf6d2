package mutants

// storeMutants are mistakes in the transactions that close orders, in the checks of a
// mapping, in the rules of deadlines, and in the producer.
var storeMutants = []mutant{
	{
		name:  "a standby of PostgreSQL is a store",
		edits: []edit{{"internal/store/postgres/connector.go", `case standby == "t":`, `case standby == "yes":`}},
		pkg:   "internal/store/postgres", run: "TestJudge_RefusesWhatDoesNotFit", says: "PostgreSQL 17|170000|t",
	},
	{
		name: "closing without compare-and-set",
		edits: []edit{
			{"internal/store/decide.go", "case st == statePaid:", "case st > stateExcluded:"},
			{"internal/store/statements.go", "WHERE %s IN ? AND %s%s = ? AND %s <= ?", "WHERE %s IN ? AND (%s%s = ? OR 1 = 1) AND %s <= ?"},
		},
		pkg: "internal/store/sqlite", run: "TestSuite_InMemory/(PaidIsNeverClosed|CancelledIsNeverClosed)", says: "verdict (-want +got)",
	},
	{
		name: "closing before due",
		edits: []edit{
			{"internal/store/decide.go", "case due.After(now):", "case due.After(now.Add(time.Hour)):"},
			{"internal/store/statements.go", "AND %s%s = ? AND %s <= ?", "AND %s%s = ? AND (%s <= ? OR 1 = 1)"},
		},
		pkg: "internal/store/sqlite", run: "TestSuite_InMemory/NeverBeforeDue", says: "status of the order due one millisecond later",
	},
	{
		name: "the last rule that matches decides",
		edits: []edit{{"delays_rules.go", "	return slices.IndexFunc(d.Rules, func(r Rule) bool { return r.Match.Matches(category, attributes) })\n",
			"	for i, r := range slices.Backward(d.Rules) {\n		if r.Match.Matches(category, attributes) {\n			return i\n		}\n	}\n	return NoRule\n"}},
		pkg: ".", run: "TestFor_TheFirstMatchDecides", says: "is the first that matches",
	},
	{
		name:  "a due time of NULL is a due time",
		edits: []edit{{"internal/store/statements.go", "		return orderclose.NeverDue, nil\n", "		return time.Unix(1, 0), nil\n"}},
		pkg:   "internal/store/sqlite", run: "TestSuite_OwnTables/ConfirmReceipt/AnOrderWithoutDueTime", says: "mark as closed: 1 rows changed, want 2",
	},
	{
		name:  "an order that the configuration excludes is closed",
		edits: []edit{{"internal/store/decide.go", "case st == stateExcluded:", "case st == stateExcluded && due.IsZero():"}},
		pkg:   "internal/store/sqlite", run: "TestSuite_OwnTables/OwnTables/ExcludedOrdersStayAsTheyAre", says: "verdicts of a preview",
	},
	{
		name:  "a mapping may name an id as a quantity of the stock",
		edits: []edit{{"internal/store/mapping/databasecolumn.go", `if index := d.indexLedBy(name); index != "" {`, `if index := d.indexLedBy(name); index == "PRIMARY" {`}},
		pkg:   "internal/store/sqlite", run: "TestMappings_AnAcceptedOneDoesNoHarm", says: "the checks accept",
	},
	{
		name:  "a statement of a close may change the rows of all other orders",
		edits: []edit{{"internal/store/mapping/onclose.go", "case negated(tokens[:at]):", "case at < 0 && negated(tokens[:at]):"}},
		pkg:   "internal/store/sqlite", run: "TestMappings_AnAcceptedOneDoesNoHarm", says: "of an order that was not closed",
	},
	{
		name:  "a long smallest bucket is accepted",
		edits: []edit{{"internal/config/check.go", "if smallest.length > maxSmallestBucket", "if smallest.length > 1000*maxSmallestBucket"}},
		pkg:   "internal/config", run: "TestParse_ReportsEveryProblemWithItsPosition", says: "the smallest bucket is 5m",
	},
	{
		name:  "the low-water mark passes an unpaid order",
		edits: []edit{{"internal/store/lowwater.go", "u.mark = min(u.mark, k.id-1)", "u.mark = max(u.mark, k.id-1)"}},
		pkg:   "internal/store/sqlite", run: "TestSuite_OwnTablesByKey/.*/TheMarkStaysBelowUnpaidOrders", says: "mark (-want +got)",
	},
	{
		name:  "the low-water mark passes a cart without a time of creation",
		edits: []edit{{"internal/store/lowwater.go", "if read++; open != nil || o.CreatedAt.IsZero() {", "if read++; open != nil {"}},
		pkg:   "internal/store/sqlite", run: "TestSuite_OwnTablesByKey/.*/ACartThatBecomesAnOrder", says: "mark below the carts",
	},
	{
		name:  "orders below the low-water mark are never read again",
		edits: []edit{{"internal/store/lowwater.go", "case at == done && now.Sub(began) < readAllEvery:", "case at == done:"}},
		pkg:   "internal/store/sqlite", run: "TestSuite_OwnTablesByKey/.*/AnOrderThatIsUnpaidAgain", says: "closed by another process",
	},
	{
		name:  "orders that have just fallen due count as overdue",
		edits: []edit{{"internal/store/pages.go", "now.Add(-grace)", "now"}},
		pkg:   "internal/store/sqlite", run: "TestSuite_InMemory/OverdueNow", says: "overdue by an hour",
	},
	{
		name:  "orders that the configuration excludes count as overdue",
		edits: []edit{{"internal/store/pages.go", "excluded == nil {", "excluded != 2 {"}},
		pkg:   "internal/store/sqlite", run: "TestSuite_OwnTables/OwnTables/ExcludedOrdersStayAsTheyAre", says: "overdue orders now",
	},
	{
		name:  "old orders that wait on purpose hide new overdue ones",
		edits: []edit{{"internal/store/pages.go", "read(t, &last[i], true)", "read(t, &last[i], false)"}},
		pkg:   "internal/store/sqlite", run: "TestSuite_InMemory/OverdueNowReads", says: "the newest",
	},
	{
		name:  "a late payment is not recorded",
		edits: []edit{{"internal/store/latepayments.go", "_, err = s.recordLate(tx, p, o.now)", "err = tx.Error"}},
		pkg:   "internal/store/sqlite", run: "TestSuite_InMemory/TheStatusDecides", says: "late payments",
	},
	{
		name:  "a second payment vanishes in the row of the first",
		edits: []edit{{"internal/store/latepayments.go", "		if k.PaymentID == p.PaymentID {\n			if k.Currency", "		if k.PaymentID == p.PaymentID || k.PaymentID == \"\" {\n			if k.Currency"}},
		pkg:   "internal/store/sqlite", run: "TestSuite_InMemory/EachPaymentOfAnOrder", says: "late payments",
	},
	{
		name:  "a second payment of a reopened order takes the place of the first",
		edits: []edit{{"internal/store/latepayments.go", "		other = other || k.Resolution == Reopened\n", ""}},
		pkg:   "internal/store/sqlite", run: "TestSuite_InMemory/AReopenedPayment", says: "a second payment",
	},
	{
		name:  "an audit does not judge orders whose due time has moved",
		edits: []edit{{"internal/ops/audit.go", "			a.sum.ClosedElsewhere++\n", "			continue\n"}},
		pkg:   "internal/ops", run: "TestAudit_JudgesTheOrders", says: "0 0 0",
	},
	{
		name:  "a repeated callback of a refunded order is late money",
		edits: []edit{{"internal/store/latepayments.go", "err != nil || !closed {\n", "err != nil {\n"}},
		pkg:   "internal/store/sqlite", run: "TestSuite_InMemory/ARepeatedCallback", says: "again, after the refund",
	},
	{
		name:  "the money of an order that was closed while the provider answered is not recorded",
		edits: []edit{{"internal/store/payorders.go", "late := o.Verdict == orderclose.AlreadyClosed\n", "late := false\n"}},
		pkg:   "internal/store/sqlite", run: "TestSuite_InMemory/PayOrdersIsTheCompareAndSetOfPay", says: "money of closed orders",
	},
	{
		name:  "the late money of an archived order is not recorded",
		edits: []edit{{"internal/store/latepayments.go", "				if o.table == nil {", "				if closed = closed && o.table != nil; false {"}},
		pkg:   "internal/store/sqlite", run: "TestSuite_InMemory/LateMoneyOfAnArchivedOrder", says: "recorded",
	},
	{
		name:  "an order is marked as paid without its event",
		edits: []edit{{"internal/store/payorders.go", "	return o, c.paidEvent(r.OrderID)\n", "	return o, nil\n"}},
		pkg:   "internal/store/sqlite", run: "TestSuite_InMemory/PayOrdersWritesAnEvent", says: "want one of order a",
	},
	{
		name:  "a close ignores a pause of all orders",
		edits: []edit{{"internal/store/pauses.go", `if p.Category == "" {`, `if p.Path == "" {`}},
		pkg:   "internal/store/sqlite", run: "TestSuite_InMemory/APausedPathClosesNothing", says: "want closing is paused",
	},
	{
		name:  "an order is postponed again whose due time has changed since the plan",
		edits: []edit{{"internal/store/postpone.go", "due.Arg(o.Due)})...)", "due.Arg(row.due)})...)"}},
		pkg:   "internal/store/sqlite", run: "TestSuite_InMemory/Postpone", says: "results (-want +got)",
	},
	{
		name:  "a release without its ledger row",
		edits: []edit{{"internal/store/stock.go", "		if err := in.exec(tx, s.dialect); err != nil {\n			return nil, fmt.Errorf(\"write the ledger", "		if err := error(nil); err != nil {\n			return nil, fmt.Errorf(\"write the ledger"}},
		pkg:   "internal/store/sqlite", run: "TestSuite_InMemory/(Stock|Receipt|Event|Closing)", says: "ledger (-want +got)",
	},
	{
		name:  "stock comes back twice",
		edits: []edit{{"internal/store/stocktables.go", "		to[i][s.q.stockSKU(i, l.sku)] += l.quantity", "		to[i][s.q.stockSKU(i, l.sku)] += 2 * l.quantity"}},
		pkg:   "internal/store/sqlite", run: "TestSuite_InMemory/(Stock|Receipt|Event|Closing|Concurrent|Batch)", says: "less is reserved than ordered",
	},
	{
		name:  "a close reads lines that another transaction is removing",
		edits: []edit{{"internal/store/statements.go", "t.lockLines = t.lines + q.d.shareLock", "t.lockLines = t.lines"}},
		pkg:   "internal/store", run: "TestOpen_ACloseLocksTheLinesThatItReads", says: "reads lines without a lock",
	},
	{
		name:  "a question mark in a text is an argument to PostgreSQL",
		edits: []edit{{"internal/store/postgres/sql.go", "		case '\\'', '\"':", "		case '\"':"}},
		pkg:   "internal/store/postgres", run: "TestTranslate", says: "want SELECT 'it''s ?",
	},
	{
		name:  "the store takes a program's whole pool",
		edits: []edit{{"internal/store/pool.go", "wanted = min(wanted, all/2)", "wanted = min(wanted, all)"}},
		pkg:   "internal/store", run: "TestOpen_RefusesAPoolWithTooFewConnections", says: "most:0 need:3",
	},
	{
		name:  "a program uses a schema that it cannot work with",
		edits: []edit{{"internal/store/migrate.go", "v.Newer() && v.Oldest <= v.Wants)", "v.Newer() && v.Oldest > 0)"}},
		pkg:   "internal/store/sqlite", run: "TestSuite_InMemory/ANewerSchemaIsUsedIfItSaysSo", says: "a later one can use",
	},
	{
		name:  "a close without its event",
		edits: []edit{{"internal/store/closing.go", "	if err := c.events(released); err != nil {", "	if err := error(nil); err != nil {"}},
		pkg:   "internal/store/sqlite", run: "TestSuite_InMemory/Event", says: "events of the order",
	},
	{
		name: "the outbox deletes before it publishes",
		edits: []edit{{"internal/store/sqlite/dialect.go", "	done := d.Publish(rows)\n	if len(done) == 0 {\n		return len(rows), nil\n	}\n",
			"	var done []int64\n	for _, row := range rows {\n		done = append(done, row.ID)\n	}\n	defer d.Publish(rows)\n"}},
		pkg: "internal/store/sqlite", run: "TestSuite_InMemory/Dispatch", says: "what is left",
	},
	{
		name:  "one bad order fails its whole batch",
		edits: []edit{{"internal/bisect/search.go", "		if err := r.search(part); err != nil {\n", "		if err := r.search(part); err != nil || len(orders) > 8 {\n"}},
		pkg:   "internal/bisect", run: "TestBisect_", says: "outcome",
	},
	{
		name:  "an order is blamed for a store that is down",
		edits: []edit{{"internal/bisect/culprits.go", "l.proved >= proof {\n", "l.proved >= min(proof, 0) {\n"}},
		pkg:   "internal/bisect", run: "TestCulprits_BlamesAnOrderOnly", says: "after verdicts on others",
	},
	{
		name:  "an order on which the store hangs is never blamed",
		edits: []edit{{"internal/bisect/suspects.go", "s.proved[id]++\n", "s.proved[id] += 0\n"}},
		pkg:   "internal/bisect", run: "TestCulprits_", says: "want failed",
	},
	{
		name:  "an order pays for a store that fails at random",
		edits: []edit{{"internal/bisect/suspects.go", "	if len(s.sinceAnswer) <= maxChargeable {", "	if len(s.sinceAnswer) >= 0 {"}},
		pkg:   "internal/bisect", run: "TestCulprits_BlamesHardlyAny", says: "are blamed once",
	},
	{
		name:  "a mapping may write to a column that is read for something else",
		edits: []edit{{"internal/store/mapping/purpose.go", "	return a.effect == \"\" && b.effect == \"\" && (a", "	return a.effect == \"\" || b.effect == \"\" && (a"}},
		pkg:   "internal/store/mapping", run: "TestCheck_", says: "mapped as the order's id",
	},
	{
		name:  "a mapping may name a table that orderclose writes to itself",
		edits: []edit{{"internal/store/mapping/check.go", "	c.refuseOwnTable(\"table\", m.Orders)\n", ""}},
		pkg:   "internal/store/mapping", run: "TestCheck_", says: "of orderclose's own tables",
	},
	{
		name:  "a reminder is written after a payment",
		edits: []edit{{"internal/store/reminders.go", "row.verdict != orderclose.NotDue || ", ""}},
		pkg:   "internal/store/sqlite", run: "TestSuite_InMemory/OnlyOrdersThatWait", says: "written and locked",
	},
	{
		name:  "orders that come between two rounds of reminders have none",
		edits: []edit{{"pipeline/reminders.go", "			from = since\n", "			from = to\n"}},
		pkg:   "internal/testkit/simulation", run: "TestChaos_SomeWorlds", says: "has 0 reminders of",
	},
	{
		name:  "a producer picks a bucket whose topic does not exist",
		edits: []edit{{"producer/watch.go", "		if ok {\n			there", "		if ok || len(there) < len(buckets) {\n			there"}},
		pkg:   "producer", run: "TestNew_DoesNotUseABucketWithoutATopic", says: "has no topic",
	},
}
