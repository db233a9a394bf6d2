package mutants

// outboxMutants are mistakes in the dispatcher of the outbox.
var outboxMutants = []mutant{
	{
		name:  "rows of a topic that is missing stop all others",
		edits: []edit{{"outbox/publish.go", "	if n == w.o.Batch && (b.left > 0 || from > 0) {\n", "	if n == w.o.Batch && from < 0 {\n"}},
		pkg:   "outbox", run: "ATopicThatIsMissing", says: "others were published",
	},
	{
		name:  "appends of the outbox have no time limit",
		edits: []edit{{"outbox/publish.go", "	holding, cancel := context.WithTimeout(ctx, holdTime)\n", "	holding, cancel := context.WithCancel(ctx)\n"}},
		pkg:   "outbox", run: "TestDispatcher_", says: "left (-want +got)",
	},
	{
		name:  "a partition without a leader is tried with each batch",
		edits: []edit{{"outbox/shunned.go", "	case !hasTime, time.Now().Before(is.until):\n", "	case !hasTime:\n"}},
		pkg:   "outbox", run: "TestDispatcher_APartition", says: "left (-want +got)",
	},
	{
		name:  "rows that were left are not looked at again",
		edits: []edit{{"outbox/walk.go", "	if !s.left || now.Before(w.on) {\n", "	if !s.left || w.end > 0 || now.Before(w.on) {\n"}},
		pkg:   "outbox", run: "TestDispatcher_", says: "left [order-000]",
	},
	{
		name:  "a row that Kafka refuses is deleted without a dead letter",
		edits: []edit{{"outbox/publish.go", "	b.refused = append(b.refused, dead{m, causeRefused, errors.Join(err, err2).Error()})\n", "	_ = err2\n	b.done = append(b.done, m.Offset)\n"}},
		pkg:   "outbox", run: "TestDispatcher_OneRefused", says: "dead letters []",
	},
	{
		name:  "one refused row makes dead letters of all in its request",
		edits: []edit{{"outbox/publish.go", "	case err != nil && half > 0:\n", "	case err != nil && half > 1000:\n"}},
		pkg:   "outbox", run: "TestDispatcher_OneRefused", says: "published (-want +got)",
	},
	{
		name:  "rows that the database did not delete are published again and again",
		edits: []edit{{"outbox/publish.go", "		w.kept.add(b.rows, b.done)\n", ""}},
		pkg:   "outbox", run: "TestDispatcher_ADatabaseThatTakesNoWrites", says: "records of 1 rows",
	},
}
