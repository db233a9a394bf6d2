package mutants

// operationMutants are mistakes in commands, logs, and HTTP servers and clients.
var operationMutants = []mutant{
	{
		name:  "what another job closes late beside a shadow run is urgent",
		edits: []edit{{"internal/ops/judge.go", "		if j.shadow() {", "		if j.shadow() && j.problems == nil {"}},
		pkg:   "internal/ops", run: "TestJudge_", says: "urgent [orders_overdue], want today",
	},
	{
		name:  "the verdict leaves out a question that got no answer",
		edits: []edit{{"internal/ops/judge.go", "	if len(why) > 0 {", "	if len(why) > 9 {"}},
		pkg:   "internal/ops", run: "TestJudge", says: "not_answered",
	},
	{
		name:  "a process that was stopped is shown as gone",
		edits: []edit{{"internal/ops/processes.go", "case p.Ended || now.Sub", "case now.Sub"}},
		pkg:   "internal/ops", run: "TestCompareProcesses_", says: "relay@h:3:9464 gone",
	},
	{
		name:  "compensators with different files change the delays each hour",
		edits: []edit{{"internal/ops/control.go", "!maps.Equal(p.Delays, before.Delays) && (n == 0", "(n == 0"}},
		pkg:   "internal/ops", run: "TestControl_HasTheDelays", says: "they have different files",
	},
	{
		name:  "all closers are frozen while closing has stopped",
		edits: []edit{{"internal/ops/status_judge.go", "one := !t.close ||", "one := true ||"}},
		pkg:   "internal/ops", run: "TestFollow_", says: "no order is closed: ",
	},
	{
		name:  "the records that wait for the database are blamed on the closer",
		edits: []edit{{"internal/ops/judge.go", "return j.Overdue.Err != nil || j.Writes.Err != nil", "return j.Overdue.Err != nil"}},
		pkg:   "internal/ops", run: "TestJudge_", says: "writes_refused records_overdue",
	},
	{
		name:  "a delay that falls to half is no problem",
		edits: []edit{{"internal/ops/delays.go", "case 2*c.to <= most:", "case 4*c.to <= most:"}},
		pkg:   "internal/ops", run: "TestJudge_ADelayThatFell", says: "by half: ",
	},
	{
		name:  "status looks at the first record of a partition only",
		edits: []edit{{"internal/ops/status.go", "	if p.Overdue <= OverdueLimit.Seconds() && p.Waiting > 1 {\n", "	if p.Overdue < 0 && p.Waiting > 1 {\n"}},
		pkg:   "internal/ops", run: "TestInspect_FindsOverdueRecords", says: "overdue by 0 s",
	},
	{
		name:  "status looks at the first gap of a partition only",
		edits: []edit{{"internal/ops/status_scan.go", "in.partition, from, last.End, maxBytes)", "in.partition, from, gaps[0].End, maxBytes)"}},
		pkg:   "internal/ops", run: "TestInspect_FindsOverdueRecords", says: "overdue by 0 s",
	},
	{
		name:  "a printed command uses another topics.yaml",
		edits: []edit{{"internal/cli/output.go", "withConfig(text.String(), c.config)", "text.String()"}},
		pkg:   "internal/cli", run: "TestBroker_DeadLettersAre", says: "the plan does not print the command",
	},
	{
		name:  "the console shows a command that acts without a plan",
		edits: []edit{{"internal/runbook/runbook.go", " && !strings.Contains(line, \" --yes\")", ""}},
		pkg:   "internal/runbook", run: "TestFirst_", says: "redrive --yes",
	},
	{
		name:  "a topic that does not answer hides the others from status",
		edits: []edit{{"internal/ops/status.go", "	for i, target := range targets {\n		t := &r.Topics[i]\n", "	for _, t := range r.Topics {\n		if t.Problem != \"\" {\n			return r\n		}\n	}\n	for i, target := range targets {\n		t := &r.Topics[i]\n"}},
		pkg:   "internal/ops", run: "TestInspect_APartitionThatDoesNotAnswer", says: "0 wait in 30 partitions",
	},
	{
		name:  "topics apply changes the topic of another team",
		edits: []edit{{"internal/kafka/foreign.go", "			if foreign && changes(findings[i]) {\n", "			if !foreign && changes(findings[i]) {\n"}},
		pkg:   "internal/ops", run: "TestApply_", says: "it was changed",
	},
	{
		name:  "a delay topic of another team is served",
		edits: []edit{{"internal/ops/buckets.go", "err != nil || foreign {\n		return 0, err\n", "err != nil && foreign {\n		return 0, err\n"}},
		pkg:   "internal/testkit/simulation", run: "TestSimulation_ATopicOfAnotherTeam", says: "records of another team",
	},
	{
		name:  "a pause of a control topic that was deleted stays on",
		edits: []edit{{"internal/ops/control.go", "	c.pauses, c.sweeps, c.losses, c.delays = map[orderclose.Path]wire.Pause{}, nil, nil, nil\n", "	if c.pauses == nil {\n		c.pauses = map[orderclose.Path]wire.Pause{}\n	}\n"}},
		pkg:   "internal/ops", run: "TestControl_StartsAgainInAnotherLog", says: "pauses one",
	},
	{
		name:  "the samples of lateness are the first records of each partition",
		edits: []edit{{"internal/ops/lateness.go", "first += step {", "first += s.Len() {"}},
		pkg:   "internal/ops", run: "TestReadLateness_Samples", says: "the median is",
	},
	{
		name:  "an App waits for ever for a pool that can never work",
		edits: []edit{{"pipeline/await.go", "		if errors.Is(err, store.ErrPool) {\n", "		if errors.Is(nil, store.ErrPool) {\n"}},
		pkg:   "pipeline", run: "TestRun_ReturnsWhatCanNeverWork", says: "Run returns <nil>",
	},
	{
		name:  "an App that was closed is ready",
		edits: []edit{{"pipeline/life.go", "		a.ready.waiting.add(appEnded, \"was closed\")\n", ""}},
		pkg:   "pipeline", run: "TestClose_EndsRun", says: "a closed App is ready",
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
		edits: []edit{{"pipeline/health.go", ", IdleTimeout: idleWithin,", ", IdleTimeout: 1000 * idleWithin,"}},
		pkg:   "pipeline", run: "TestServe_", says: "the connection is still open",
	},
	{
		name:  "the first of two contradictory verdicts is accepted",
		edits: []edit{{"closer/httpclose/verdict.go", "		case before.Verdict != v.Verdict:\n", "		case before.Verdict == \"\":\n"}},
		pkg:   "closer/httpclose", run: "TestStore_", says: "Verdict:",
	},
	{
		name:  "an invalid environment variable stops commands that do not use it",
		edits: []edit{{"internal/config/environ.go", "		return len(names) == 0 ||", "		return len(names) >= 0 ||"}},
		pkg:   "internal/config", run: "TestFromEnviron_", says: "error ORDERCLOSE_DB_DSN_FILE",
	},
	{
		name:  "an error quotes a secret that is set as the name of a file",
		edits: []edit{{"internal/config/environ.go", "		err = wrapped.Err\n", "		_ = wrapped\n"}},
		pkg:   "internal/config", run: "TestFromEnviron_ErrorsName", says: "user:hunter2@",
	},
	{
		name:  "a DSN lets a connection fall back to plain text",
		edits: []edit{{"internal/store/dsn.go", "	case cfg.AllowFallbackToPlaintext:\n", "	case false:\n"}},
		pkg:   "internal/store", run: "TestOpen_NeverConnects", says: `"?tls=preferred" with files false: error <nil>`,
	},
	{
		name:  "the stock service's answer is logged with the token",
		edits: []edit{{"release/http.go", "h.withoutSecrets(req.URL, string(said))", "string(said)"}},
		pkg:   "release", run: "TestHTTP_ErrorsHaveNoSecret", says: "no such page",
	},
	{
		name:  "with an invalid topics.yaml the reference schema is used",
		edits: []edit{{"internal/config/salvage.go", "if isUnder(path, key) || isUnder(key, path) {", "if path == key+key {"}},
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
	{
		name:  "a shadow run commits records before their verdicts are acked",
		edits: []edit{{"internal/shadow/handler.go", "	h.unacked++\n", "	h.unacked++\n	h.loop.Done(e.generation, e.offset)\n"}},
		pkg:   "internal/shadow", run: "TestShadow_AnswersAreBounded", says: "done below",
	},
	{
		name:  "a later record of an order replaces the verdict of a shadow run",
		edits: []edit{{"internal/ops/shadow_verdicts.go", "		case !s.all[n-1].final():\n", "		default:\n"}},
		pkg:   "internal/ops", run: "TestShadowVerdicts_", says: "want closed at",
	},
	{
		name:  "a search shows the dead letter of another order with the same hash",
		edits: []edit{{"internal/ops/deadletters/list.go", "return q.Order != \"\" && l.Key != q.Order", "return false"}},
		pkg:   "internal/ops/deadletters", run: "TestCatalog_ASearch", says: `found "b a"`,
	},
	{
		name:  "a recreated dead-letter topic with as many records is not noticed",
		edits: []edit{{"internal/ops/deadletters/follow.go", "		if c.id != ([16]byte{}) {", "		if c.id == id {"}},
		pkg:   "internal/ops/deadletters", run: "TestCatalog_StartsAgain", says: "Pending:map[failed:1]",
	},
	{
		name:  "another record at the offset is shown as the dead letter",
		edits: []edit{{"internal/ops/deadletters/list.go", "	if l.AppendedAt.UnixMilli() != w.at || r.c.index.hash(l.Key) != w.key || w.i >= r.end {", "	if w.i >= r.end {"}},
		pkg:   "internal/ops/deadletters", run: "TestCatalog_ARecordThatIsNot", says: "Letters:[{At:0/0",
	},
	{
		name:  "any bytes in a dead letter's cause become the label of a metric",
		edits: []edit{{"internal/ops/deadletters/index.go", "	if len(name) > maxName || !utf8.ValidString(name) {", "	if !utf8.ValidString(\"\") {"}},
		pkg:   "internal/ops/deadletters", run: "TestIndex_CountsInvalid", says: "0 dead letters as other; want",
	},
	{
		name:  "the console answers every host name",
		edits: []edit{{"internal/console/access/gate.go", "	if !g.hosts[hostOf(r.Host)] {\n", "	if r.Host == \"\" {\n"}},
		pkg:   "internal/console/access", run: "TestGate_AcceptsTheHosts", says: `Host "evil.example" of / answers 200 OK`,
	},
	{
		name:  "a viewer starts actions of the console",
		edits: []edit{{"internal/console/access/gate.go", "	case i.Role != Operator:\n", "	case i.Role == \"\":\n"}},
		pkg:   "internal/console/access", run: "TestGate_EachRole", says: "/plans answers 200 OK",
	},
	{
		name:  "any address may name the user of the console",
		edits: []edit{{"internal/console/access/identity.go", "	if !isProxy(g.o.Settings, peer) {\n", "	if !peer.IsValid() {\n"}},
		pkg:   "internal/console/access", run: "TestProxy_IsBelieved", says: "from 10.0.0.8:1: answers 200 OK",
	},
	{
		name:  "the console accepts forms of other sites",
		edits: []edit{{"internal/console/access/gate.go", "	if g.origin.Check(r) != nil {\n", "	if g.origin.Check(r) != nil && g.below(r) == \"\" {\n"}},
		pkg:   "internal/console/access", run: "TestOtherSites_TheirRequests", says: "/order answers 200 OK",
	},
	{
		name:  "a client may guess passwords of the console as fast as bcrypt",
		edits: []edit{{"internal/console/access/passwords.go", "	if !p.throttle.begin(peer) {", "	if !p.throttle.begin(peer) && p.settings.Listen == \"\" {"}},
		pkg:   "internal/console/access", run: "TestPasswords_AGuessThatMustWait", says: `answers "busy" after 5s`,
	},
	{
		name:  "somebody else confirms a plan of the console",
		edits: []edit{{"internal/console/plans.go", "	case p.Who != by.Name:\n", "	case p.Who == \"\":\n"}},
		pkg:   "internal/console", run: "TestPlans_CanBeConfirmed", says: "<nil>",
	},
	{
		name:  "a plan of the console never expires",
		edits: []edit{{"internal/console/plans.go", "!s.now().Before(p.Expires)", "s.now().IsZero()"}},
		pkg:   "internal/console", run: "TestPlans_CanBeConfirmed", says: "<nil>",
	},
	{
		name:  "a moment that is typed into the console is in UTC, whatever zone the reader has chosen",
		edits: []edit{{"internal/console/times.go", "momentIn(zone, name, value)", "momentIn(time.UTC, name, value)"}},
		pkg:   "internal/console", run: "TestZone_IsChosenByACookie", says: "the page lacks",
	},
	{
		name:  "the console shows control characters as they are",
		edits: []edit{{"internal/console/page.go", "if n++; n > most {", "if n++; n > 0 {\n			return s\n		}\n		if n > most {"}},
		pkg:   "internal/console", run: "TestClean_", says: "want",
	},
	{
		name:  "without Kafka and a copy of the pauses nobody sweeps",
		edits: []edit{{"pipeline/pausecopy.go", "	case left > 0:\n", "	case true:\n"}},
		pkg:   "pipeline", run: "TestPauses_ASweepWaits", says: "after the wait",
	},
	{
		name:  "a compensator without Kafka ignores the kept pause",
		edits: []edit{{"pipeline/pausecopy.go", "		case known && until.After(s.now()):\n", "		case false:\n"}},
		pkg:   "pipeline", run: "TestPauses_ACompensatorWithoutKafka", says: "during the kept pause",
	},
}
