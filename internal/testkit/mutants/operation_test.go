package mutants

// operationMutants are mistakes in commands, logs, and HTTP servers and clients.
var operationMutants = []mutant{
	{
		name:  "status looks at the first record of a partition only",
		edits: []edit{{"internal/ops/status.go", "	if p.Overdue <= OverdueLimit.Seconds() && p.Waiting > 1 {\n", "	if p.Overdue < 0 && p.Waiting > 1 {\n"}},
		pkg:   "internal/ops", run: "TestInspect_FindsOverdueRecords", says: "overdue by 0 s",
	},
	{
		name:  "status looks at the first gap of a partition only",
		edits: []edit{{"internal/ops/status_scan.go", "	last := gaps[len(gaps)-1]\n	for", "	last := gaps[0]\n	for"}},
		pkg:   "internal/ops", run: "TestInspect_FindsOverdueRecords", says: "overdue by 0 s",
	},
	{
		name:  "a topic that does not answer hides the others from status",
		edits: []edit{{"internal/ops/status.go", "	for i, target := range targets {\n		t := &r.Topics[i]\n", "	for _, t := range r.Topics {\n		if t.Problem != \"\" {\n			return r\n		}\n	}\n	for i, target := range targets {\n		t := &r.Topics[i]\n"}},
		pkg:   "internal/ops", run: "TestInspect_APartitionThatDoesNotAnswer", says: "0 wait in 30 partitions",
	},
	{
		name:  "a flood of warnings logs as many lines in each period as in the first",
		edits: []edit{{"internal/retry/logs.go", "	*w = window{logged: LogBurst}\n", "	*w = window{}\n"}},
		pkg:   "internal/retry", run: "TestLimitLogs_FloodIs", says: "is no summary",
	},
	{
		name:  "the log limit remembers any number of messages",
		edits: []edit{{"internal/retry/logs.go", "	if w == nil && len(k.windows) >= maxKinds {\n", "	if w == nil && len(k.windows) < 0 {\n"}},
		pkg:   "internal/retry", run: "TestLimitLogs_NumberOfKinds", says: "lines, want",
	},
	{
		name:  "a signed request has no read timeout",
		edits: []edit{{"internal/httpcall/receive.go", "	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(readTimeout))\n", "	_ = readTimeout\n"}},
		pkg:   "internal/httpcall", run: "TestReceive_ASlowBody", says: "the connection ends after",
	},
	{
		name:  "a client that is idle keeps its connection to the metrics",
		edits: []edit{{"pipeline/serve.go", ", IdleTimeout: idleWithin,", ", IdleTimeout: 1000 * idleWithin,"}},
		pkg:   "pipeline", run: "TestServe_", says: "the connection is still open",
	},
	{
		name:  "the first of two contradictory verdicts is accepted",
		edits: []edit{{"closer/httpclose/verdict.go", "		case before.Verdict != v.Verdict:\n", "		case before.Verdict == \"\":\n"}},
		pkg:   "closer/httpclose", run: "TestStore_", says: "Verdict:",
	},
	{
		name:  "an invalid environment variable stops commands that do not use it",
		edits: []edit{{"internal/config/environ.go", "		if len(names) == 0 ||", "		if len(names) >= 0 ||"}},
		pkg:   "internal/config", run: "TestFromEnviron_", says: "error ORDERCLOSE_DB_DSN_FILE",
	},
	{
		name:  "with an invalid topics.yaml the reference schema is used",
		edits: []edit{{"internal/config/salvage.go", "OrdersUnknown: unknown}", "OrdersUnknown: false}"}},
		pkg:   "internal/config", run: "TestSalvage_", says: "the orders' tables are unknown: false",
	},
	{
		name:  "audit ignores a status that the mapping does not name",
		edits: []edit{{"internal/ops/audit_judge.go", "			if r.Part.Unlisted {", "			if r.Part.Unlisted && !has {"}},
		pkg:   "internal/ops", run: "TestJudge_AStatus", says: "the order is REFUNDED",
	},
	{
		name:  "errors that pass within seconds are logged as warnings",
		edits: []edit{{"internal/retry/logs.go", "	if w.logged < LogBurst && !of.transient {\n", "	if w.logged < LogBurst {\n"}},
		pkg:   "internal/retry", run: "TestLimitLogs_", says: "want level=INFO",
	},
}
