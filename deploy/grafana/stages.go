package main

import (
	"slices"
	"strings"
)

// processes are the variables of a stage whose processes export a metric.
func processes(metric string) []variable {
	return []variable{jobs, {"instance", "Process", metric + "{" + everywhere + "}", ""}}
}

func relayDashboard() dashboard {
	const topics = here + `,topic=~"$topic"`
	return dashboard{
		file: "relay.json", uid: "orderclose-relay", title: "orderclose: relay",
		shows:     "The relays: records wait in the buckets, leave when they are due, or hop to another bucket.",
		variables: partitions("relay", "Bucket"),
		rows: append([]row{
			{height: graphHeight, panels: []panel{
				{
					title: "Overdue", kind: "timeseries", unit: "s", runbook: "Records do not leave a delay topic",
					shows:   "By how much the next record to leave a bucket is overdue, as the relays report it: the worst partition.",
					good:    "below 1 s.",
					queries: []query{{"{{topic}}", "clamp_min(" + since("topic", "orderclose_delay_head_due_timestamp_seconds", topics) + ", 0)"}},
				},
				{
					title: "Lateness", kind: "timeseries", unit: "s", runbook: "Records do not leave a delay topic",
					shows: "How long after its due time a record was in the close topic: half of the records, and 99 of 100, " +
						"arrived sooner. All buckets.",
					good:    "milliseconds. No line: no record was forwarded.",
					queries: quantiles("orderclose_relay_lateness_seconds", here),
				},
			}},
			{height: graphHeight, panels: []panel{
				{
					title: "Forwarded per second", kind: "timeseries", unit: "short", runbook: "A role is missing",
					shows:   "Due records that were appended to the close topic, by the bucket that they left.",
					good:    "the rate at which orders become due.",
					queries: []query{{"{{topic}}", perSecond("topic", "orderclose_relay_forwarded_total", topics)}},
				},
				{
					title: "Hops per second", kind: "timeseries", unit: "short", runbook: "A producer picks the wrong bucket",
					shows:   "Records that moved to another bucket, because they were not due at the end of theirs.",
					good:    "at most a few for each order. A delay that equals a bucket's length needs none.",
					queries: []query{{"{{from}} to {{to}}", perSecond("from, to", "orderclose_relay_hops_total", here+`,from=~"$topic"`)}},
				},
				{
					title: "Partitions", kind: "timeseries", unit: "short", runbook: "A role is missing",
					shows:   "Partitions of the buckets that each process serves.",
					good:    "alike in all processes, and in sum all partitions of all buckets.",
					queries: []query{{"{{instance}}", "count by (instance) (orderclose_delay_head_due_timestamp_seconds{" + topics + "})"}},
				},
			}},
			{height: graphHeight, panels: []panel{
				waiting(`topic=~"$topic"`),
				farthest(`topic=~"$topic"`),
				{
					title: "Read ahead", kind: "timeseries", unit: "short", runbook: "The window is full",
					shows:   "Records that wait in memory, by bucket: those that may leave within seconds, and all of the shortest bucket.",
					good:    "far below the number of waiting records.",
					queries: []query{{"{{topic}}", "sum by (topic) (orderclose_relay_window_records{" + topics + "})"}},
				},
				{
					title: "Memory of read-ahead records", kind: "timeseries", unit: "bytes", runbook: "The window is full",
					shows:   "Memory of the records that wait in memory, by process.",
					good:    "below the limit of 256 MB for each process.",
					queries: []query{{"{{instance}}", "sum by (instance) (orderclose_relay_window_bytes{" + topics + "})"}},
				},
			}},
			{title: "What makes records late", height: graphHeight, panels: []panel{
				{
					title: "Batches with a producer's time", kind: "timeseries", unit: "short", runbook: "Topics differ",
					shows:   "Batches with a timestamp of their producer, by bucket: the topic is not set to LogAppendTime.",
					good:    "0.",
					queries: []query{{"{{topic}}", events("topic", "orderclose_producer_stamped_batches_total", topics)}},
				},
				{
					title: "Clock offset", kind: "timeseries", unit: "s", runbook: "Clocks differ",
					shows:   "By how much the clock of a machine differs from the one by which its process works: the database's, or the brokers'.",
					good:    "below 0.25 s.",
					queries: []query{{"{{instance}}", "max by (instance) (abs(orderclose_clock_offset_seconds{" + here + "}))"}},
				},
			}},
			{height: graphHeight, panels: []panel{
				duplicates(),
				{
					title: "Runs that may be repeated", kind: "timeseries", unit: "short", runbook: "Records are duplicated",
					shows: "Runs of records that were forwarded and did not fit into a commit, by process. " +
						"The next relay of the partition may forward them again, which is harmless.",
					good:    "0, or a few while a topic accepts no records.",
					queries: []query{{"{{instance}}", events("instance", "orderclose_relay_unrecorded_runs_total", here)}},
				},
			}},
		}, append(stageFailures("relay"), process())...),
	}
}

func closerDashboard() dashboard {
	const endpoints = here + `,endpoint!="stock"`
	return dashboard{
		file: "closer.json", uid: "orderclose-closer", title: "orderclose: closer",
		shows:     "The closers: due records of the close topic become closed orders, in batches.",
		variables: partitions("closer", "Topic"),
		rows: append([]row{
			{height: graphHeight, panels: []panel{
				{
					title: "Orders per second, by result", kind: "timeseries", unit: "short", runbook: "Orders are retried",
					shows:   "Attempts to close an order, by result.",
					good:    "closed and already_paid; already_closed counts duplicates; the others hardly rise.",
					queries: []query{{"{{result}}", perSecond("result", "orderclose_close_total", here+`,path="pipeline"`)}},
				},
				{
					title: "Lateness", kind: "timeseries", unit: "s", runbook: "The closer is behind",
					shows:   "How long after its due time an order was closed, by the database's clock: half of the orders, and 99 of 100, are closed sooner.",
					good:    "milliseconds. No line: no order was closed.",
					queries: quantiles("orderclose_close_end_to_end_lateness_seconds", here+`,path="pipeline"`),
				},
				categories("Lateness by category", here),
			}},
			{height: graphHeight, panels: []panel{
				waiting(`topic=~"$topic"`),
				{
					title: "Overdue in the close topic", kind: "timeseries", unit: "s", runbook: "The closer is behind",
					shows:   "By how much the most overdue record of the close topic is overdue, as a compensator reads it from Kafka every minute.",
					good:    "below 1 s.",
					queries: []query{{"{{topic}}", "max by (topic) (orderclose_waiting_overdue_seconds{" + everywhere + `,topic=~"$topic"})`}},
				},
				{
					title: "Early", kind: "stat", unit: "short", red: anyAtAll, runbook: "Something was early",
					shows:   "Orders that were closed before they were due, by the database's clock, in the time range.",
					good:    "0, always.",
					queries: []query{{"Orders", count("orderclose_close_early_total", here)}},
				},
			}},
			{height: graphHeight, panels: []panel{
				{
					title: "Duration of a batch", kind: "timeseries", unit: "s", runbook: "The database is down or slow",
					shows:   "How long closing one batch takes: half of the batches, and 99 of 100, take less.",
					good:    "below closer.target_latency, 0.25 s by default, 3 s with a service. No line: nothing was closed.",
					queries: quantiles("orderclose_close_batch_seconds", here),
				},
				{
					title: "Limit of orders in transactions", kind: "timeseries", unit: "short", runbook: "The backlog drains slowly",
					shows:   "How many orders each process may have in transactions at once. It falls while the database is slow.",
					good:    "not at its minimum for long.",
					queries: []query{{"{{instance}}", "max by (instance) (orderclose_close_concurrency_limit_orders{" + here + "} > 0)"}},
				},
				{
					title: "Retries", kind: "timeseries", unit: "short", runbook: "Orders are retried",
					shows:   "Orders that could not be closed and will be retried, by cause.",
					good:    "0, or hardly more.",
					queries: []query{{"{{cause}}", events("cause", "orderclose_retry_total", here)}},
				},
				{
					title: "Due times of another time zone", kind: "timeseries", unit: "short", runbook: "Due times differ",
					shows: "Orders whose due time in the database is whole quarter-hours later or earlier than in the record: " +
						"a mistake of time zones, or somebody moved them.",
					good:    "0, or only orders whose due times were moved.",
					queries: []query{{"{{row}}", events("row", "orderclose_close_due_differs_total", here)}},
				},
				{
					title: "Database refuses writes", kind: "timeseries", unit: "s", runbook: "The database takes no writes",
					shows:   "For how long the database has refused the writes of a close, which each process tries every 15 s and rolls back.",
					good:    "0.",
					queries: []query{{"{{instance}}", "max by (instance) (orderclose_database_write_failing_seconds{" + here + "})"}},
				},
			}},
		}, append(stageFailures("closer"), []row{
			{title: "Services (with closer.http.url, or a payment provider)", height: graphHeight, panels: []panel{
				{
					title: "Duration of a call", kind: "timeseries", unit: "s", runbook: "The service that closes does not answer",
					also:  "The payment provider does not answer",
					shows: "How long 99 of 100 calls of a service take at most, and the timeout of the next call. No line without a service.",
					good:  "well below the timeout.",
					queries: []query{
						{"{{endpoint}}", quantile("0.99", "endpoint", "orderclose_call_seconds", endpoints)},
						{"{{endpoint}} timeout", "min by (endpoint) (orderclose_call_timeout_seconds{" + endpoints + "})"},
					},
				},
				{
					title: "Calls per second", kind: "timeseries", unit: "short", runbook: "The service that closes does not answer",
					also:  "The payment provider does not answer",
					shows: "Calls of a service, by result, and calls that were not made because its circuit breaker is open.",
					good:  "ok only.",
					queries: []query{
						{"{{endpoint}} {{result}}", perSecond("endpoint, result", "orderclose_call_seconds_count", endpoints)},
						{"{{endpoint}} not made", perSecond("endpoint", "orderclose_calls_refused_total", endpoints)},
					},
				},
				{
					title: "Circuit breaker", kind: "timeseries", unit: "short", runbook: "The service that closes does not answer",
					also:    "The payment provider does not answer",
					shows:   "State of a service's circuit breaker: 0 closed (calls are made), 1 half-open (one call tests the service), 2 open (no calls).",
					good:    "0.",
					queries: []query{{"{{endpoint}}", "max by (endpoint) (orderclose_breaker_state{" + endpoints + "})"}},
				},
				{
					title: "Every call fails", kind: "timeseries", unit: "s", runbook: "The service that closes does not answer", also: "The payment provider does not answer",
					shows:   "For how long every call of a service has failed, also if it answers with errors.",
					good:    "0.",
					queries: []query{{"{{endpoint}}", since("endpoint", "orderclose_calls_failing_since_timestamp_seconds", endpoints)}},
				},
			}},
			{height: graphHeight, panels: []panel{
				{
					title: "Answers of the payment provider", kind: "timeseries", unit: "short", runbook: "The payment provider does not answer",
					shows:   "Orders per second that the payment provider was asked about before their close, by its answer.",
					good:    "no unknown.",
					queries: []query{{"{{answer}}", perSecond("answer", "orderclose_payment_answers_total", here)}},
				},
				{
					title: "Orders that wait for the payment provider", kind: "timeseries", unit: "short", runbook: "The payment provider does not answer",
					shows: "Orders past due that stay open until the payment provider can answer. It is the difference of two counters, over all closers: " +
						"choose all processes, and mistrust it after restarts.",
					good: "a few.",
					queries: []query{{"Orders", "clamp_min(sum(orderclose_payment_pending_began_total{" + everywhere + "}) - " +
						"sum(orderclose_payment_pending_ended_total{" + everywhere + "}), 0)"}},
				},
			}},
			process(),
		}...)...),
	}
}

func compensatorDashboard() dashboard {
	return dashboard{
		file: "compensator.json", uid: "orderclose-compensator", title: "orderclose: compensator",
		shows:     "The compensators: the loop that closes overdue orders, its lock, what follows from lost records, and the check of what waits in Kafka.",
		variables: processes("orderclose_compensator_every_seconds"),
		rows: []row{
			{height: statHeight, panels: []panel{
				{
					title: "Late", kind: "stat", unit: "s", red: 120, runbook: "The compensator is late",
					shows:   "For how long an order may be overdue that the compensator has not tried to close.",
					good:    "below 30 s.",
					queries: []query{{"Late", "clamp_min(" + since("", "orderclose_compensator_unasked_since_timestamp_seconds", everywhere) + ", 0)"}},
				},
				{
					title: "Last pass", kind: "stat", unit: "s", red: 600, runbook: "The compensator is late",
					shows: "Time since a compensator finished a pass over all overdue orders, and how many of the last two hours have no finished pass.",
					good:  "below a minute; 0 hours. Decades: no pass has finished.",
					queries: []query{
						{"Ago", "time() - max(orderclose_compensator_last_pass_timestamp_seconds{" + everywhere + "})"},
						{"Unfinished hours", "max(orderclose_compensator_unfinished_hours{" + everywhere + "})"},
					},
				},
				{
					title: "Missed", kind: "stat", unit: "short", red: 10, runbook: "The compensator finds orders",
					shows:   "Orders that compensators closed, in the time range, because the pipeline had missed them.",
					good:    "0, or hardly more.",
					queries: []query{{"Orders", count("orderclose_compensator_found_total", here+`,kind="missed"`)}},
				},
				{
					title: "Lock", kind: "stat", unit: "short", green: 1, runbook: "Redis or the lock is down",
					shows: "1 if the server of the first lock answers, and 1 if the lock is not stuck. " +
						"Compensators also work without the lock.",
					good: "1.",
					queries: []query{
						{"Can be taken", "min(orderclose_compensator_lock_available{" + here + "})"},
						{"Not stuck", "1 - max(orderclose_compensator_lock_stuck{" + here + "})"},
					},
				},
				deadLettersPending("Dead letters"),
			}},
			{height: graphHeight, panels: []panel{
				{
					title: "Found, by kind", kind: "timeseries", unit: "short", runbook: "The compensator finds orders",
					shows: "Overdue orders that a compensator tried first. It closed those that the pipeline had missed, and those after a pause or a failure. " +
						"not_closed: it did not close them at once.",
					good:    "0, or hardly more.",
					queries: []query{{"{{kind}}", events("kind", "orderclose_compensator_found_total", here)}},
				},
				{
					title: "Tried by compensators, by result", kind: "timeseries", unit: "short", runbook: "The compensator finds orders",
					shows:   "Attempts of compensators to close an order, by result.",
					good:    "0, or hardly more.",
					queries: []query{{"{{result}}", events("result", "orderclose_close_total", here+`,path="sweep"`)}},
				},
				{
					title: "Lateness of orders that compensators closed", kind: "timeseries", unit: "s", runbook: "The compensator finds orders",
					shows: "How long after its due time an order was closed by a compensator: half of these orders, and 99 of 100, are closed sooner. " +
						"A histogram counts up to two hours.",
					good:    "half a minute. No line: a compensator closed no order.",
					queries: quantiles("orderclose_close_end_to_end_lateness_seconds", here+`,path="sweep"`),
				},
			}},
			{height: graphHeight, panels: []panel{
				{
					title: "Passes and failures", kind: "timeseries", unit: "short", runbook: "The compensator is late",
					shows: "Passes over all overdue orders that have finished, and turns that failed.",
					good:  "four passes a minute, fewer if they take long, and no failed turn.",
					queries: []query{
						{"finished", "sum(increase(orderclose_compensator_pass_seconds_count{" + here + "}[$__rate_interval]))"},
						{"failed", "sum(increase(orderclose_compensator_failed_total{" + here + "}[$__rate_interval]))"},
					},
				},
				{
					title: "Duration of a pass", kind: "timeseries", unit: "s", runbook: "The compensator is late",
					shows: "How long a pass over all overdue orders took on average, in the time range.",
					good:  "below 30 s; by rule, with many tables, minutes.",
					queries: []query{
						{"average", "sum(increase(orderclose_compensator_pass_seconds_sum{" + here +
							"}[$__range])) / sum(increase(orderclose_compensator_pass_seconds_count{" + here + "}[$__range]))"},
					},
				},
				{
					title: "Orders that rest", kind: "timeseries", unit: "short", runbook: "An order cannot be closed",
					shows:   "Orders that could not be closed, and rest up to five minutes before the compensator tries them again.",
					good:    "0, or a few.",
					queries: []query{{"orders", "max(orderclose_compensator_resting_orders{" + here + "})"}},
				},
			}},
			{title: "Closed orders that the payment provider is asked about again", height: graphHeight, panels: []panel{
				{
					title: "Asked again", kind: "timeseries", unit: "short", runbook: "The payment provider does not answer",
					shows:   "Closed orders that the payment provider was asked about again (closer.payment.recheck), by result. No line without a payment provider.",
					good:    "none. A late_payment is money that somebody must give back; given_up are orders on which the provider never had an answer.",
					queries: []query{{"{{result}}", events("result", "orderclose_compensator_rechecked_total", here)}},
				},
				{
					title: "Behind", kind: "timeseries", unit: "s", runbook: "The payment provider does not answer",
					shows:   "By how much these questions are behind closer.payment.recheck.",
					good:    "below 5 minutes.",
					queries: []query{{"{{instance}}", "orderclose_compensator_recheck_behind_seconds{" + here + "}"}},
				},
			}},
			{title: "Overdue orders in the database", height: graphHeight, panels: []panel{
				{
					title: "Overdue orders, by category", kind: "timeseries", unit: "short", runbook: "Orders are overdue in the database",
					shows: "Unpaid orders that have been due for more than 5 s, by category, and those that wait because closing is paused. " +
						"One compensator counts 1000 of them at most.",
					good: "0, or a few that are retried.",
					queries: []query{
						{"{{category}}", "max by (category) (orderclose_overdue_orders{" + here + "})"},
						{"paused", "max(orderclose_overdue_orders_paused{" + here + "})"},
					},
				},
				{
					title: "The oldest overdue order", kind: "timeseries", unit: "s", runbook: "Orders are overdue in the database",
					shows:   "For how long the oldest of these orders has been due. While a backlog drains, it falls.",
					good:    "0, or minutes while an order is retried.",
					queries: []query{{"oldest", "max(orderclose_overdue_orders_oldest_seconds{" + here + "})"}},
				},
				{
					title: "Late payments", kind: "timeseries", unit: "short", runbook: "Money came after a close",
					shows: "Payments that came after their order was closed, or twice, and that nobody has resolved. " +
						"The compensator that counts overdue orders counts them.",
					good:    "0. No value: no compensator counts.",
					queries: []query{{"unresolved", "max(orderclose_late_payments_unresolved{" + here + "})"}},
				},
				{
					title: "Age of the oldest late payment", kind: "timeseries", unit: "s", runbook: "Money came after a close",
					shows: "For how long the oldest of these payments has waited for a decision.",
					good:  "0, or less than your time limit for refunds.",
					queries: []query{{"oldest", "(time() - max(orderclose_late_payments_oldest_timestamp_seconds{" + here +
						"} > 0)) or max(orderclose_late_payments_oldest_timestamp_seconds{" + here + "})"}},
				},
			}},
			{title: "Reminders", height: graphHeight, panels: []panel{
				{
					title: "Reminders", kind: "timeseries", unit: "short", runbook: "Reminders are late",
					shows:   "Reminders of unpaid orders that were written.",
					good:    "as many as customers get. 0 without a rule with remind.",
					queries: []query{{"{{instance}}", events("instance", "orderclose_reminder_lateness_seconds_count", here)}},
				},
				{
					title: "Behind", kind: "timeseries", unit: "s", runbook: "Reminders are late",
					shows:   "For how long no compensator has written all reminders.",
					good:    "below 20 s. No line: no rule has remind.",
					queries: []query{{"behind", "time() - max(orderclose_reminders_complete_timestamp_seconds{" + here + "} > 0)"}},
				},
			}},
			{title: "What waits in Kafka, read every minute", height: graphHeight, panels: []panel{
				waiting(`topic=~".+"`),
				{
					title: "Overdue", kind: "timeseries", unit: "s", runbook: "Records do not leave a delay topic",
					shows:   "By how much the most overdue record of each topic is overdue, whatever relays and closers report.",
					good:    "below 1 s.",
					queries: []query{{"{{topic}}", "max by (topic) (orderclose_waiting_overdue_seconds{" + everywhere + "})"}},
				},
				farthest(`topic=~".+"`),
				{
					title: "Not checked", kind: "timeseries", unit: "short", runbook: "First look",
					shows:   "Topics and partitions that could not be checked, or whose log does not have the committed offset, by process.",
					good:    "0.",
					queries: []query{{"{{instance}}", "max by (instance) (orderclose_waiting_unseen{" + here + "})"}},
				},
			}},
			{title: "Dead letters", height: graphHeight, panels: []panel{
				{
					title: "Pending, by cause", kind: "timeseries", unit: "short", runbook: "Dead letters",
					shows: "Dead letters that are neither redriven nor discarded, by cause.",
					good:  "0.",
					queries: []query{
						{"{{cause}}", "max by (cause) (orderclose_dead_letters_pending{" + everywhere + "})"},
						{"all", "sum(max by (cause) (orderclose_dead_letters_pending{" + everywhere + "})) or 0 * max(orderclose_dead_letters_read_timestamp_seconds{" +
							everywhere + "})"},
					},
				},
				{
					title: "Oldest pending", kind: "timeseries", unit: "s", runbook: "Dead letters",
					shows: "Age of the oldest dead letter that is pending. The topic deletes records after 90 days.",
					good:  "0: none is pending.",
					queries: []query{{"Age", "time() - min(orderclose_dead_letters_oldest_pending_timestamp_seconds{" + everywhere + "}) or " +
						"0 * max(orderclose_dead_letters_read_timestamp_seconds{" + everywhere + "})"}},
				},
				{
					title: "Last counted", kind: "timeseries", unit: "s", runbook: "Dead letters",
					shows:   "Time since any process last read the dead-letter topic to its end.",
					good:    "below 10 minutes. Otherwise nobody knows how many are pending.",
					queries: []query{{"Ago", "time() - max(orderclose_dead_letters_read_timestamp_seconds{" + everywhere + "})"}},
				},
			}},
			process(),
		},
	}
}

func outboxDashboard() dashboard {
	return dashboard{
		file: "outbox.json", uid: "orderclose-outbox", title: "orderclose: outbox",
		shows:     "The dispatchers: rows of schedules and of events become records in Kafka.",
		variables: processes("orderclose_outbox_rows"),
		rows: []row{
			{height: graphHeight, panels: []panel{
				{
					title: "Oldest row of schedules", kind: "timeseries", unit: "s", runbook: "An outbox is late",
					shows:   "For how long the oldest row has waited whose order is to be scheduled.",
					good:    "below 1 s. No line: no dispatcher runs.",
					queries: []query{{"schedules", "max(orderclose_outbox_oldest_unpublished_seconds{" + everywhere + `,outbox="schedules"})`}},
				},
				{
					title: "Oldest row of events", kind: "timeseries", unit: "s", runbook: "An outbox is late",
					shows:   "For how long the oldest event of a closed order has waited to be published.",
					good:    "below 1 s. No line: no dispatcher runs.",
					queries: []query{{"events", "max(orderclose_outbox_oldest_unpublished_seconds{" + everywhere + `,outbox="events"})`}},
				},
				{
					title: "Rows", kind: "timeseries", unit: "short", runbook: "An outbox is late",
					shows:   "Rows that wait in each outbox, counted up to 10,000.",
					good:    "near 0.",
					queries: []query{{"{{outbox}}", "max by (outbox) (orderclose_outbox_rows{" + everywhere + "})"}},
				},
			}},
			{height: graphHeight, panels: []panel{
				{
					title: "Published per second", kind: "timeseries", unit: "short", runbook: "An outbox is late",
					shows:   "Rows that were published and deleted, by outbox.",
					good:    "the rate of new orders that use the outbox, and of closes.",
					queries: []query{{"{{outbox}}", perSecond("outbox", "orderclose_outbox_dispatched_total", here)}},
				},
				{
					title: "Published per second, by process", kind: "timeseries", unit: "short", runbook: "An outbox is late",
					shows:   "Rows that each process published and deleted.",
					good:    "each process publishes, while rows wait.",
					queries: []query{{"{{instance}}", perSecond("instance", "orderclose_outbox_dispatched_total", here)}},
				},
				deadLetters("outbox"),
				duplicates(),
			}},
			process(),
		},
	}
}

// sweeperDashboard has the panels of a compensator for sweeps alone: nothing about Kafka, and no order that a pipeline missed.
func sweeperDashboard() dashboard {
	d := compensatorDashboard()
	d.file, d.uid, d.title = "sweeper.json", "orderclose-sweeper", "orderclose: sweeps alone"
	d.shows = "Sweepers, which close orders with a database alone: their passes, how late orders close, and what is overdue."
	ofPipeline := []string{"Missed", "Found, by kind", "Dead letters"}
	var rows []row
	for _, r := range d.rows {
		if strings.Contains(r.title, "Kafka") {
			continue
		}
		r.panels = slices.DeleteFunc(r.panels, func(p panel) bool { return slices.Contains(ofPipeline, p.title) })
		for i := range r.panels {
			switch p := &r.panels[i]; p.title {
			case "Tried by compensators, by result":
				p.title, p.good, p.runbook = "Orders, by result", "as many closed as unpaid orders become due.", "Orders are overdue in the database"
			case "Lateness of orders that compensators closed":
				p.title, p.good, p.runbook = "Lateness", "up to the interval and the time that a turn takes.", "The compensator is late"
			}
		}
		rows = append(rows, r)
	}
	d.rows = rows
	return d
}
