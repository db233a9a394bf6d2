package main

import "strings"

// stage is a stage of an order's way, with the panels that only it has.
type stage struct {
	name   string
	series string // a metric that its processes have, and no others
	panels []panel
}

// stages shows the stages: what the processes of the chosen ones use, and what fails there, above the panels of each.
func stages() dashboard {
	d := dashboard{
		file: "stage.json", uid: "orderclose-stage", title: "orderclose: stage",
		shows: "The processes of a stage, and the panels of each stage in a row of its own: records wait in delay topics and leave when they are due, " +
			"due orders are closed in batches, rows of the outbox become records, and sweeps find what was missed.",
		rows: []row{{title: "Failures of the chosen stages", panels: failures()}, {title: "Processes of the chosen stages", panels: processes()}},
	}
	var choices []string
	for _, s := range []stage{delay(), closing(), outbox(), sweep(), webhook()} {
		choices = append(choices, s.name+" : "+s.series)
		d.rows = append(d.rows, row{title: s.name, collapsed: true, panels: s.panels})
	}
	d.variables = []variable{
		jobs,
		{name: "stage", label: "Stage", choices: strings.Join(choices, ", ")},
		{name: "instance", label: "Process", of: `{__name__=~"$stage",` + everywhere + "}"},
	}
	return d
}

func failures() []panel {
	return []panel{
		graph("Fetches fail", "s", "A partition cannot be read",
			"For how long fetches have failed, by topic: the partition that has failed longest.",
			"0.",
			named("topic", since("topic", "orderclose_fetch_failing_since_timestamp_seconds", here))),
		graph("Lost records", "short", "The log has lost records",
			"Records that were gone before they were read, by topic.",
			"0.",
			events("topic", "orderclose_retention_lost_records_total", here)),
		graph("Loops that hung", "short", "A partition was stuck",
			"Loops of partitions that hung and were restarted, by topic.",
			"0.",
			events("topic", "orderclose_partition_stuck_total", here)),
		graph("Dead letters, by cause", "short", "Dead letters",
			"Records that were given up: all, and those causes that there were. A record that is read again counts again.",
			"0.",
			query{"all", "sum(increase(orderclose_dead_letters_total{" + here + "}[$__rate_interval]))"},
			query{"{{stage}}: {{cause}}", "sum by (stage, cause) (increase(orderclose_dead_letters_total{" + here + "}[$__rate_interval])) > 0"}),
		graph("Possible duplicates", "short", "Records are duplicated",
			"Records that may have been appended twice, by process. Duplicates are harmless.",
			"a few.",
			events("instance", "orderclose_possible_duplicates_total", here)),
		graph("Clock offset", "s", "Clocks differ",
			"By how much the clock of a machine differs from the one by which its process works, the database's or the brokers', and that of a checkout from either.",
			"below 0.25 s.",
			named("instance", "max by (instance) (abs(orderclose_clock_offset_seconds{"+here+"}))"),
			query{"checkouts, as {{seen_by}} sees it", "max by (seen_by) (abs(orderclose_producer_clock_ahead_seconds{" + here + "}))"}),
	}
}

func processes() []panel {
	return []panel{
		graph("Memory", "bytes", "First look",
			"Memory of each process, and the part of it that the Go heap uses.",
			"level over days. Windows and buffers have limits, so a backlog adds tens of megabytes.",
			named("instance", "process_resident_memory_bytes{"+here+"}"),
			query{"{{instance}} heap", "go_memstats_heap_inuse_bytes{" + here + "}"}),
		graph("CPU", "short", "First look",
			"Cores that each process uses.",
			"well below the cores of its machine or its limit.",
			perSecond("instance", "process_cpu_seconds_total", here)),
		graph("Goroutines", "short", "First look",
			"Goroutines of each process. Each partition takes a few.",
			"level. A number that only grows is a bug.",
			named("instance", "go_goroutines{"+here+"}")),
		graph("Open files", "percentunit", "First look",
			"Open files and connections of each process, as a share of the number that it may open.",
			"below 80 %.",
			named("instance", "process_open_fds{"+here+"} / process_max_fds{"+here+"}")),
	}
}

// delay is the stage of the relays.
func delay() stage {
	return stage{"delay", "orderclose_delay_head_due_timestamp_seconds", []panel{
		graph("Overdue, by bucket", "s", "Records do not leave a delay topic",
			"By how much the next record to leave a bucket is overdue, as the relays report it: the worst partition.",
			"below 1 s.",
			named("topic", "clamp_min("+since("topic", "orderclose_delay_head_due_timestamp_seconds", here)+", 0)")),
		graph("Lateness of relays", "s", "Records do not leave a delay topic",
			"How long after its due time a record was in the close topic: half of the records, and 99 of 100, arrived sooner. All buckets.",
			"milliseconds. No line: no record was forwarded.",
			quantiles("orderclose_relay_lateness_seconds", here)...),
		graph("Forwarded per second", "short", "A role is missing",
			"Due records that were appended to the close topic, by the bucket that they left.",
			"the rate at which orders become due.",
			perSecond("topic", "orderclose_relay_forwarded_total", here)),
		graph("Hops per second", "short", "A producer picks the wrong bucket",
			"Records that moved to another bucket, because they were not due at the end of theirs.",
			"at most a few for each order. A delay that equals a bucket's length needs none.",
			query{"{{from}} to {{to}}", "sum by (from, to) (rate(orderclose_relay_hops_total{" + here + "}[$__rate_interval]))"}),
		graph("Partitions", "short", "A role is missing",
			"Partitions of the buckets that each process serves.",
			"alike in all processes, and in sum all partitions of all buckets.",
			named("instance", "count by (instance) (orderclose_delay_head_due_timestamp_seconds{"+here+"})")),
		graph("Read ahead", "short", "The window is full",
			"Records that wait in memory, by bucket: those that may leave within seconds, and all of the shortest bucket.",
			"far below the number of waiting records.",
			named("topic", "sum by (topic) (orderclose_relay_window_records{"+here+"})")),
		graph("Memory of read-ahead records", "bytes", "The window is full",
			"Memory of the records that wait in memory, by process.",
			"below the limit of 256 MB for each process.",
			named("instance", "sum by (instance) (orderclose_relay_window_bytes{"+here+"})")),
		graph("Batches with a producer's time", "short", "Topics differ",
			"Batches with a timestamp of their producer, by bucket: the topic is not set to LogAppendTime. They make records late.",
			"0.",
			events("topic", "orderclose_producer_stamped_batches_total", here)),
		graph("Runs that may be repeated", "short", "Records are duplicated",
			"Runs of records that were forwarded and did not fit into a commit, by process. "+
				"The next relay of the partition may forward them again, which is harmless.",
			"0, or a few while a topic accepts no records.",
			events("instance", "orderclose_relay_unrecorded_runs_total", here)),
	}}
}

// closing is the stage of the closers. The last six panels are of services: with closer.http.url, or a payment provider.
func closing() stage {
	const (
		endpoints = here + `,endpoint!="stock"`
		closes    = "The service that closes does not answer"
		provider  = "The payment provider does not answer"
	)
	return stage{"close", "orderclose_retry_total", []panel{
		graph("Orders per second, by result", "short", "Orders are retried",
			"Attempts to close an order, by result.",
			"closed and already_paid; already_closed counts duplicates; the others hardly rise.",
			perSecond("result", "orderclose_close_total", here+`,path="pipeline"`)),
		graph("Duration of a batch", "s", "The database is down or slow",
			"How long closing one batch takes: half of the batches, and 99 of 100, take less.",
			"below closer.target_latency, 0.25 s by default, 3 s with a service. No line: nothing was closed.",
			quantiles("orderclose_close_batch_seconds", here)...),
		graph("Limit of orders in transactions", "short", "The backlog drains slowly",
			"How many orders each process may have in transactions at once. It falls while the database is slow.",
			"not at its minimum for long.",
			named("instance", "max by (instance) (orderclose_close_concurrency_limit_orders{"+here+"} > 0)")),
		graph("Retries", "short", "Orders are retried",
			"Orders that could not be closed and will be retried, by cause.",
			"0, or hardly more.",
			events("cause", "orderclose_retry_total", here)),
		graph("Due times of another time zone", "short", "Due times differ",
			"Orders whose due time in the database is whole quarter-hours later or earlier than in the record: "+
				"a mistake of time zones, or somebody moved them.",
			"0, or only orders whose due times were moved.",
			events("row", "orderclose_close_due_differs_total", here)),
		graph("Database refuses writes", "s", "The database takes no writes",
			"For how long the database has refused the writes of a close, which each process tries every 15 s and rolls back.",
			"0.",
			most("instance", "orderclose_database_write_failing_seconds", here)),
		graph("Duration of a call", "s", closes,
			"How long 99 of 100 calls of a service take at most, and the timeout of the next call. No line without a service.",
			"well below the timeout.",
			named("endpoint", quantile("0.99", "endpoint", "orderclose_call_seconds", endpoints)),
			query{"{{endpoint}} timeout", "min by (endpoint) (orderclose_call_timeout_seconds{" + endpoints + "})"}).or(provider),
		graph("Calls per second", "short", closes,
			"Calls of a service, by result, and calls that were not made because its circuit breaker is open.",
			"ok only.",
			query{"{{endpoint}} {{result}}", "sum by (endpoint, result) (rate(orderclose_call_seconds_count{" + endpoints + "}[$__rate_interval]))"},
			query{"{{endpoint}} not made", "sum by (endpoint) (rate(orderclose_calls_refused_total{" + endpoints + "}[$__rate_interval]))"}).or(provider),
		graph("Circuit breaker", "short", closes,
			"State of a service's circuit breaker: 0 closed (calls are made), 1 half-open (one call tests the service), 2 open (no calls).",
			"0.",
			most("endpoint", "orderclose_breaker_state", endpoints)).or(provider),
		graph("Every call fails", "s", closes,
			"For how long every call of a service has failed, also if it answers with errors.",
			"0.",
			named("endpoint", since("endpoint", "orderclose_calls_failing_since_timestamp_seconds", endpoints))).or(provider),
		graph("Answers of the payment provider", "short", provider,
			"Orders per second that the payment provider was asked about before their close, by its answer.",
			"no unknown.",
			perSecond("answer", "orderclose_payment_answers_total", here)),
		graph("Orders that wait for the payment provider", "short", provider,
			"Orders past due that stay open until the payment provider can answer. It is the difference of two counters, over all closers: "+
				"mistrust it after restarts.",
			"a few.",
			query{"Orders", "clamp_min(sum(orderclose_payment_pending_began_total{" + everywhere + "}) - " +
				"sum(orderclose_payment_pending_ended_total{" + everywhere + "}), 0)"}),
	}}
}

// outbox is the stage of the dispatchers.
func outbox() stage {
	return stage{"outbox", "orderclose_outbox_rows", []panel{
		graph("Oldest row", "s", "An outbox is late",
			"For how long the oldest row of schedules has waited whose order is to be scheduled, and the oldest event of a closed order.",
			"below 1 s. No line: no dispatcher runs.",
			most("outbox", "orderclose_outbox_oldest_unpublished_seconds", everywhere)),
		graph("Rows", "short", "An outbox is late",
			"Rows that wait in each outbox, counted up to 10,000.",
			"near 0.",
			most("outbox", "orderclose_outbox_rows", everywhere)),
		graph("Published per second", "short", "An outbox is late",
			"Rows that were published and deleted, by outbox.",
			"the rate of new orders that use the outbox, and of closes.",
			perSecond("outbox", "orderclose_outbox_dispatched_total", here)),
		graph("Published per second, by process", "short", "An outbox is late",
			"Rows that each process published and deleted.",
			"each process publishes, while rows wait.",
			perSecond("instance", "orderclose_outbox_dispatched_total", here)),
	}}
}

// sweep is the stage of the compensators, and of sweepers alone.
func sweep() stage {
	return stage{"sweep", "orderclose_compensator_every_seconds", []panel{
		graph("Last pass", "s", "The compensator is late",
			"Time since a compensator finished a pass over all overdue orders.",
			"below a minute. Decades: no pass has finished.",
			query{"ago", "time() - max(orderclose_compensator_last_pass_timestamp_seconds{" + everywhere + "})"}),
		graph("Hours without a finished pass", "short", "The compensator is late",
			"How many of the last two hours have no finished pass.",
			"0.",
			query{"hours", "max(orderclose_compensator_unfinished_hours{" + everywhere + "})"}),
		graph("Passes and failures", "short", "The compensator is late",
			"Passes over all overdue orders that have finished, and turns that failed.",
			"four passes a minute, fewer if they take long, and no failed turn.",
			query{"finished", "sum(increase(orderclose_compensator_pass_seconds_count{" + here + "}[$__rate_interval]))"},
			query{"failed", "sum(increase(orderclose_compensator_failed_total{" + here + "}[$__rate_interval]))"}),
		graph("Duration of a pass", "s", "The compensator is late",
			"How long a pass over all overdue orders took on average, in the time range.",
			"below 30 s; by rule, with many tables, minutes.",
			query{"average", "sum(increase(orderclose_compensator_pass_seconds_sum{" + here +
				"}[$__range])) / sum(increase(orderclose_compensator_pass_seconds_count{" + here + "}[$__range]))"}),
		graph("Lock", "short", "Redis or the lock is down",
			"1 if the server of the first lock answers, and 1 if the lock is not stuck. Compensators also work without the lock.",
			"1.",
			query{"can be taken", "min(orderclose_compensator_lock_available{" + here + "})"},
			query{"not stuck", "1 - max(orderclose_compensator_lock_stuck{" + here + "})"}),
		graph("Found, by kind", "short", "The compensator finds orders",
			"Overdue orders that a compensator tried first. It closed those that the pipeline had missed, and those after a pause or a failure. "+
				"not_closed: it did not close them at once.",
			"0, or hardly more.",
			events("kind", "orderclose_compensator_found_total", here)),
		graph("Tried by sweeps, by result", "short", "The compensator finds orders",
			"Attempts of compensators and sweepers to close an order, by result.",
			"0, or hardly more; of sweeps alone, as many closed as unpaid orders become due.",
			events("result", "orderclose_close_total", here+`,path="sweep"`)),
		graph("Lateness of sweeps", "s", "The compensator finds orders",
			"How long after its due time an order was closed by a sweep: half of these orders, and 99 of 100, are closed sooner. "+
				"A histogram counts up to two hours.",
			"half a minute; of sweeps alone, the interval and the time that a turn takes. No line: a sweep closed no order.",
			quantiles("orderclose_close_end_to_end_lateness_seconds", here+`,path="sweep"`)...).or("The compensator is late"),
		graph("Overdue orders, by category", "short", "Orders are overdue in the database",
			"Unpaid orders that have been due for more than 5 s, by category, and those that wait because closing is paused. "+
				"One compensator counts 1000 of them at most.",
			"0, or a few that are retried.",
			most("category", "orderclose_overdue_orders", here),
			query{"paused", "max(orderclose_overdue_orders_paused{" + here + "})"}),
		graph("The oldest overdue order", "s", "Orders are overdue in the database",
			"For how long the oldest of these orders has been due. While a backlog drains, it falls.",
			"0, or minutes while an order is retried.",
			query{"oldest", "max(orderclose_overdue_orders_oldest_seconds{" + here + "})"}),
		graph("Orders that rest", "short", "An order cannot be closed",
			"Orders that could not be closed, and rest up to five minutes before the compensator tries them again.",
			"0, or a few.",
			query{"orders", "max(orderclose_compensator_resting_orders{" + here + "})"}),
		graph("Asked again", "short", "The payment provider does not answer",
			"Closed orders that the payment provider was asked about again (closer.payment.recheck), by result. No line without a payment provider.",
			"none. A late_payment is money that somebody must give back; given_up are orders on which the provider never had an answer.",
			events("result", "orderclose_compensator_rechecked_total", here)),
		graph("Questions behind", "s", "The payment provider does not answer",
			"By how much these questions are behind closer.payment.recheck.",
			"below 5 minutes.",
			named("instance", "orderclose_compensator_recheck_behind_seconds{"+here+"}")),
		graph("Reminders", "short", "Reminders are late",
			"Reminders of unpaid orders that were written.",
			"as many as customers get. 0 without a rule with remind.",
			events("instance", "orderclose_reminder_lateness_seconds_count", here)),
		graph("Reminders behind", "s", "Reminders are late",
			"For how long no compensator has written all reminders.",
			"below 20 s. No line: no rule has remind.",
			query{"behind", "time() - max(orderclose_reminders_complete_timestamp_seconds{" + here + "} > 0)"}),
	}}
}

func webhook() stage {
	return stage{name: "webhook", series: "orderclose_webhook_waiting_events", panels: []panel{
		graph("Oldest event that waits", "s", "Events do not reach the webhook",
			"Age of the oldest event that the receiver has not accepted. Each process reads the same number in the database.",
			"a few seconds. It grows while the receiver accepts nothing, or refuses one event.",
			query{"Oldest", "max(orderclose_webhook_oldest_waiting_seconds{" + here + "})"}),
		graph("Events that wait", "short", "Events do not reach the webhook",
			"Events that the receiver has not accepted, by what they wait for. Each process reads the same number in the database.",
			"near 0.",
			query{"{{for}}", "max by (for) (orderclose_webhook_waiting_events{" + here + "})"}),
		graph("Requests per second, by result", "short", "Events do not reach the webhook",
			"Requests with an event, by result.",
			"accepted, and no failed.",
			query{"{{result}}", "sum by (result) (rate(orderclose_webhook_posts_total{" + here + "}[$__rate_interval]))"}),
		graph("Another reader of events", "short", "Events do not reach the webhook",
			"1 if another program takes rows of outbox_events. The webhook does not get them.",
			"0.",
			query{"Another reader", "max(orderclose_webhook_other_reader{" + here + "})"}),
	}}
}
