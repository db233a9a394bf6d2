package mutants

// outboxMutants are mistakes in the outbox dispatcher.
var outboxMutants = []mutant{
	{
		name:  "rows of a missing topic stop all others",
		edits: []edit{{"outbox/worker.go", "	if n == w.o.Batch && (b.skipped > 0 || from > 0) {\n", "	if n == w.o.Batch && from < 0 {\n"}},
		pkg:   "outbox", run: "AMissingTopicDelays", says: "others were published",
	},
	{
		name:  "appends of the outbox have no time limit",
		edits: []edit{{"outbox/publish.go", "	holding, cancel := context.WithTimeout(ctx, publishTimeout)\n", "	holding, cancel := context.WithCancel(ctx)\n"}},
		pkg:   "outbox", run: "TestDispatcher_", says: "left (-want +got)",
	},
	{
		name:  "a partition without a leader is tried in each batch",
		edits: []edit{{"internal/send/health.go", "	wait = max(time.Until(f.until), 0)\n", ""}},
		pkg:   "outbox", run: "TestDispatcher_APartition", says: "left (-want +got)",
	},
	{
		name:  "skipped rows are never retried",
		edits: []edit{{"outbox/walk.go", "	if !s.any || now.Before(w.resumeAt) {\n", "	if !s.any || w.end > 0 || now.Before(w.resumeAt) {\n"}},
		pkg:   "outbox", run: "TestDispatcher_", says: "left [order-000]",
	},
	{
		name:  "a row that Kafka rejects is deleted without a dead letter",
		edits: []edit{{"outbox/publish.go", "			b.refuse(m, partition.CauseRefused, errors.Join(r.Err, err))\n", "			_, _ = m, errors.Join(r.Err, err)\n			b.ack([]wire.RawRecord{r.Record})\n"}},
		pkg:   "outbox", run: "TestDispatcher_ARejectedRow", says: "dead letters []",
	},
	{
		name:  "one rejected row makes dead letters of all rows of its request",
		edits: []edit{{"internal/send/sender.go", "	case len(records) == 1:\n		r.Refused = append(r.Refused, Refusal{records[0], err})\n		return 1, nil\n", "	case len(records) > 0:\n		for _, one := range records {\n			r.Refused = append(r.Refused, Refusal{one, err})\n		}\n		return len(records), nil\n"}},
		pkg:   "outbox", run: "TestDispatcher_ARejectedRow", says: "published (-want +got)",
	},
	{
		name:  "rows that the database did not delete are published again and again",
		edits: []edit{{"outbox/worker.go", "		w.undeleted.add(b.rows, b.done)\n", ""}},
		pkg:   "outbox", run: "TestDispatcher_PublishesRowsOnce", says: "records of 1 rows",
	},
	{
		name:  "the short payload of a service's event is published as it is",
		edits: []edit{{"internal/store/outbox.go", "			r.Payload, r.Traceparent = expandEvent(r.OrderID, r.Payload)\n", ""}},
		pkg:   "pipeline", run: "TestApp_PublishesTheEventsThatAService", says: "(-documented +published)",
	},
}
