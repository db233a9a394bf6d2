package mutants

// outboxMutants are mistakes in the outbox dispatcher.
var outboxMutants = []mutant{
	{"missing-topic-stops", "rows of a missing topic stop all others", changes{{"(b.skipped > 0 || from > 0)", "from < 0"}},
		"outbox", "TestDispatcher_AMissingTopicDelaysNoOtherTopic", "published of 20 others"},
	{"outbox-append-unlimited", "appends of the outbox have no time limit", changes{{"WithTimeout(ctx, publishTimeout)", "WithCancel(ctx)"}},
		"outbox", "TestDispatcher_APartitionWithoutALeaderDelaysNoOther", "left (-want +got)"},
	{"leaderless-tried-always", "a partition without a leader is tried in each batch", nil,
		"outbox", "TestDispatcher_APartitionWithoutALeaderDelaysNoOther", "left (-want +got)"},
	{"skipped-never-retried", "skipped rows are never retried", changes{{"now", "w.end > 0 || now"}},
		"outbox", "TestDispatcher_ARowWithoutItsDeadLetterDelaysNoOtherRow", "left [order-000]"},
	{"rejected-row-lost", "a row that Kafka rejects is deleted without a dead letter",
		changes{{"", "_, _ = m, errors.Join(r.Err, err); b.ack([]wire.RawRecord{r.Record})"}},
		"outbox", "TestDispatcher_ARejectedRowDelaysNoOtherRow", "dead letters []"},
	{"rejected-refuses-all", "one rejected row makes dead letters of all rows of its request",
		changes{{"== 1", "> 0"}, {"r.Refused = append", "for _, one := range records { r.Refused = append"},
			{"records[0], err})", "one, err}) }"}, {"return 1", "return len(records)"}},
		"outbox", "TestDispatcher_ARejectedRowDelaysNoOtherRow", "published (-want +got)"},
	{"undeleted-published-again", "rows that the database did not delete are published again and again", nil,
		"outbox", "TestDispatcher_PublishesRowsOnceIfTheDatabaseAcceptsNoWrites/1_rows", "records of 1 rows"},
	{"short-payload-published", "the short payload of a service's event is published as it is", nil,
		"pipeline", "TestApp_PublishesTheEventsThatAServiceWrites", "published events, against the document"},
}
