package mutants

// outboxMutants are mistakes in the outbox dispatcher.
var outboxMutants = []mutant{
	{"missing-topic-stops", "rows of a missing topic stop all others", changes{{"from > 0 || len(b.done) < len(b.rows)", "false"}},
		"outbox", "TestDispatcher_AMissingTopicDelaysNoOtherTopic", "published of 20 others"},
	{"leaderless-tried-always", "a partition without a leader is tried in each batch",
		changes{{"l.resting(time.Now()) || l.busy && !l.failing.IsZero()", "false"}},
		"outbox", "TestDispatcher_APartitionWithoutALeaderDelaysNoOther", "left (-want +got)"},
	{"skipped-never-retried", "rows that are left are never tried again", nil,
		"outbox", "TestDispatcher_ARowWithoutItsDeadLetterDelaysNoOtherRow", "left [order-000]"},
	{"rejected-row-lost", "a row that Kafka rejects is deleted without a dead letter",
		changes{{"", "_, _ = m, errors.Join(r.Err, err); b.ack([]wire.RawRecord{r.Record})"}},
		"outbox", "TestDispatcher_ARejectedRowDelaysNoOtherRow", "dead letters []"},
	{"rejected-refuses-all", "one rejected row makes dead letters of all rows of its request", refuseAll,
		"outbox", "TestDispatcher_ARejectedRowDelaysNoOtherRow", "published (-want +got)"},
	{"undeleted-published-again", "rows that the database did not delete are published again and again", nil,
		"outbox", "TestDispatcher_PublishesRowsOnceIfTheDatabaseAcceptsNoWrites/1_rows", "records of 1 rows"},
	{"short-payload-published", "the short payload of a service's event is published as it is", nil,
		"pipeline", "TestApp_PublishesTheEventsThatAServiceWrites", "published events, against the document"},
}
