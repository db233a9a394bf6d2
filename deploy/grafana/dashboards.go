package main

import "strings"

// Label matchers of the queries. everywhere limits a query to the chosen scrape jobs, here also to
// the chosen processes. Metrics of the whole pipeline, such as what waits in Kafka, come from any
// compensator: they are read everywhere.
const (
	everywhere = `job=~"$job"`
	here       = `job=~"$job",instance=~"$instance"`
)

// anyAtAll is the red of counts that must be 0. increase() extrapolates, so that one event may count
// as less than 1.
const anyAtAll = 0.01

// delaysFell is the expression of the alert OrdercloseDelayFell.
var delaysFell = strings.NewReplacer("delay{", "orderclose_delay_seconds{"+everywhere+",", "delay", "orderclose_delay_seconds{"+everywhere+"}").Replace(
	`(min by (category) (delay) or max by (category) (max_over_time(delay[1d])) * 0 + on () group_left () min(delay{category="default"}))` +
		` <= 0.5 * max by (category) (max_over_time(delay[1d]))` +
		` or min by (category) (delay unless on (category) max_over_time(delay[1h] offset 1d))` +
		` <= on () group_left () 0.5 * max(max_over_time(delay{category="default"}[1h] offset 1d))`)

// jobs is the variable that every dashboard has. A Prometheus that watches several pipelines
// scrapes each as a job.
var jobs = variable{name: "job", label: "Job", of: "orderclose_config_last_reload_successful", all: ".+"}

func dashboards() []dashboard { return []dashboard{overview(), stages()} }

// openLetters counts open dead letters. It is 0, and not empty, if the dead letters were counted and none is open.
var openLetters = "sum(max by (cause) (orderclose_dead_letters_open{" + everywhere + "})) or " +
	"0 * max(orderclose_dead_letters_read_timestamp_seconds{" + everywhere + "})"

// overview shows the promises on one screen, with the numbers of README.md, and below it errors by part.
func overview() dashboard {
	return dashboard{
		file: "overview.json", uid: "orderclose-overview", title: "orderclose: overview",
		shows: "The promises of orderclose on one screen, and below it errors by part. A number in a title is the promise that the panel watches: " +
			"1 never early, 2 never lost, 3 never twice, 4 on time, 5 never silent.",
		variables: []variable{jobs},
		rows: []row{
			{panels: []panel{
				stat("1 Early", "short", "Something was early",
					"Orders that were closed before they were due, by the database's clock, in the time range.",
					"0, always. An early record only waits in the closer.",
					query{"Orders", count("orderclose_close_early_total", everywhere)}).redFrom(anyAtAll),
				stat("2 Overdue", "s", "Records do not leave a delay topic",
					"By how much the most overdue record is overdue: as a compensator reads it in Kafka, and as the relays report it themselves.",
					"below 1 s.",
					query{"In Kafka", "max(orderclose_waiting_overdue_seconds{" + everywhere + "})"},
					query{"In relays", "clamp_min(" + since("", "orderclose_delay_head_due_timestamp_seconds", everywhere) + ", 0)"}).redFrom(30),
				stat("2 Missed", "short", "The compensator finds orders",
					"Orders that compensators closed, in the time range, because the pipeline had missed them.",
					"0 or hardly more. Such orders close half a minute late.",
					query{"Orders", count("orderclose_compensator_found_total", everywhere+`,kind="missed"`)}).redFrom(10),
				stat("2 Compensator", "s", "The compensator is late",
					"For how long an order may be overdue that the compensator has not tried to close.",
					"below 30 s.",
					query{"Late", "clamp_min(" + since("", "orderclose_compensator_untried_since_timestamp_seconds", everywhere) + ", 0)"}).redFrom(120),
				stat("2 Lost by Kafka", "short", "The log has lost records",
					"Records that were gone before they were read, in the time range: by retention, by a log that lost its end, or by a topic that was recreated.",
					"0. The compensator closes the orders within half a minute.",
					query{"Records", count("orderclose_retention_lost_records_total", everywhere)}).redFrom(anyAtAll),
				stat("2 Dead letters", "short", "Dead letters",
					"Dead letters whose orders are unpaid, or not known and a day old at most.",
					"0. No value: no process counts them.",
					query{"Pending", openLetters}).redFrom(1),
				stat("3 Repeated", "short", "Records are duplicated",
					"Attempts to close an order that was closed or cancelled before, and records that may have been appended to Kafka twice, "+
						"in the time range. The transaction of such an attempt changes nothing: each order has one receipt.",
					"hardly any closes outside of replays, and a few records. orderclose audit proves that nothing was closed or returned twice.",
					query{"Closes", count("orderclose_close_total", everywhere+`,result="already_closed"`)},
					query{"Records", count("orderclose_possible_duplicates_total", everywhere)}),
				stat("5 Not checked", "short", "First look",
					"Topics and partitions that a compensator could not check for waiting records. Something overdue there would go unnoticed.",
					"0. orderclose status says why.",
					query{"Topics and partitions", "max(orderclose_waiting_unseen{" + everywhere + "})"}).redFrom(1),
				stat("5 Failing for", "s", "A partition cannot be read",
					"For how long fetches of a partition have failed, and for how long the database has refused the writes of a close.",
					"0.",
					query{"Fetches", since("", "orderclose_fetch_failing_since_timestamp_seconds", everywhere)},
					query{"Database writes", "max(orderclose_database_write_failing_seconds{" + everywhere + "})"}).redFrom(60).or("The database takes no writes"),
				stat("5 Configuration", "short", "topics.yaml was refused",
					"Processes that refused a changed topics.yaml and keep the previous one, differences between the topics and topics.yaml, "+
						"and delays that have fallen by half or more within a day.",
					"0.",
					query{"Refused", "sum(1 - orderclose_config_last_reload_successful{" + everywhere + "})"},
					query{"Topics differ", "max(orderclose_topic_drift{" + everywhere + "})"},
					query{"Delays fell", "count(" + delaysFell + ") or vector(0)"}).redFrom(1).or("Topics differ"),
				stat("5 Processes", "short", "First look",
					"Processes that run each role, by their own metrics. A role that no process runs reports nothing else.",
					"at least 1 of each, 2 to survive the loss of a machine.",
					query{"Relays", "count(count by (instance) (orderclose_delay_head_due_timestamp_seconds{" + everywhere + "})) or vector(0)"},
					query{"Closers", "count(orderclose_close_concurrency_limit_orders{" + everywhere + "} > 0) or vector(0)"},
					query{"Compensators", "count(orderclose_compensator_every_seconds{" + everywhere + "} > 0) or vector(0)"},
					query{"Dispatchers", "count(count by (instance) (orderclose_outbox_rows{" + everywhere + "})) or vector(0)"}).greenFrom(1),
			}},
			{panels: []panel{
				graph("4 Lateness of closes", "s", "The closer is behind",
					"How long after its due time an order was closed, by the database's clock, without retried ones and those that compensators closed: "+
						"half of the orders, and 99 of 100, are closed sooner.",
					"milliseconds. No line: no order was closed.",
					quantiles("orderclose_close_end_to_end_lateness_seconds", everywhere+`,path="pipeline"`)...).or("Records do not leave a delay topic"),
				graph("4 Lateness by category", "s", "The closer is behind",
					"How long after its due time an order was closed: 99 of 100 orders of the category are closed sooner. "+
						"Categories that topics.yaml does not list are counted as default.",
					"milliseconds, and alike in all categories. A category without a line: none of its orders was closed.",
					query{"{{category}}", quantile("0.99", "category", "orderclose_close_end_to_end_lateness_seconds", everywhere+`,path="pipeline"`)}),
				graph("2 Overdue orders", "short", "Orders are overdue in the database",
					"Unpaid orders that have been due in the database for more than 5 s, whatever Kafka has. 1000 are counted at most.",
					"0, or a few that are retried. No value: no compensator counts.",
					query{"Orders", "max(sum without (category) (orderclose_overdue_orders{" + everywhere + "}))"}),
				graph("Closed orders per second", "short", "The closer is behind",
					"Orders that were closed, by the pipeline and by sweeps.",
					"the rate at which unpaid orders become due. Sweeps close almost none.",
					perSecond("path", "orderclose_close_total", everywhere+`,result="closed"`)),
				graph("Waiting records", "short", "First look",
					"Records that wait in each topic, as a compensator reads it from Kafka every minute. Records wait in a bucket on purpose.",
					"the number of open orders, and no topic that only grows. The close topic: near 0.",
					most("topic", "orderclose_waiting_records", everywhere)),
				graph("Farthest due", "s", "A producer picks the wrong bucket",
					"How far ahead the latest due time in each topic lies, of the records that a compensator reads every minute: "+
						"the first and the last of each partition, and samples between.",
					"at most the longest delay in topics.yaml. Far more: a producer computes wrong due times.",
					most("topic", "orderclose_waiting_farthest_due_seconds", everywhere)),
			}},
			{title: "Errors by part, and what waits for a person", panels: []panel{
				graph("Dead letters", "short", "Dead letters",
					"Records that each stage gave up. A record that is read again counts again.",
					"0.",
					events("stage", "orderclose_dead_letters_total", everywhere)),
				graph("Fetches fail", "s", "A partition cannot be read",
					"For how long fetches have failed, by stage: the partition that has failed longest.",
					"0.",
					query{"{{stage}}", since("stage", "orderclose_fetch_failing_since_timestamp_seconds", everywhere)}),
				graph("Overdue, by topic", "s", "Records do not leave a delay topic",
					"By how much the most overdue record of each topic is overdue, whatever relays and closers report.",
					"below 1 s.",
					most("topic", "orderclose_waiting_overdue_seconds", everywhere)).or("The closer is behind"),
				graph("Not checked, by process", "short", "First look",
					"Topics and partitions that could not be checked, or whose log does not have the committed offset, by process.",
					"0.",
					most("instance", "orderclose_waiting_unseen", everywhere)),
				graph("Open dead letters, by cause", "short", "Dead letters",
					"Dead letters whose orders are unpaid, or not known and a day old at most, by cause.",
					"0.",
					most("cause", "orderclose_dead_letters_open", everywhere), query{"all", openLetters}),
				graph("Dead letters: the oldest, and the last count", "s", "Dead letters",
					"Age of the oldest dead letter that is open, and time since any process last read the dead-letter topic to its end. "+
						"The topic deletes records after 90 days.",
					"0: none is pending; counted within 10 minutes. Otherwise nobody knows how many are pending.",
					query{"oldest", "time() - min(orderclose_dead_letters_oldest_open_timestamp_seconds{" + everywhere + "}) or " +
						"0 * max(orderclose_dead_letters_read_timestamp_seconds{" + everywhere + "})"},
					query{"counted", "time() - max(orderclose_dead_letters_read_timestamp_seconds{" + everywhere + "})"}),
				graph("Late payments", "short", "Money came after a close",
					"Payments that came after their order was closed, or twice, and that nobody has resolved. "+
						"The compensator that counts overdue orders counts them.",
					"0. No value: no compensator counts.",
					query{"unresolved", "max(orderclose_late_payments_unresolved{" + everywhere + "})"}),
				graph("Age of the oldest late payment", "s", "Money came after a close",
					"For how long the oldest of these payments has waited for a decision.",
					"0, or less than your time limit for refunds.",
					query{"oldest", "(time() - max(orderclose_late_payments_oldest_timestamp_seconds{" + everywhere +
						"} > 0)) or max(orderclose_late_payments_oldest_timestamp_seconds{" + everywhere + "})"}),
			}},
		},
	}
}

// count counts events in the time range of the dashboard.
func count(metric, matchers string) string {
	return "sum(increase(" + metric + "{" + matchers + "}[$__range]))"
}

// named is a query of one series for each value of a label.
func named(label, expr string) query { return query{"{{" + label + "}}", expr} }

// most is the greatest value, by a label.
func most(label, metric, matchers string) query {
	return named(label, "max by ("+label+") ("+metric+"{"+matchers+"})")
}

// perSecond counts events per second, by a label.
func perSecond(label, metric, matchers string) query {
	return named(label, "sum by ("+label+") (rate("+metric+"{"+matchers+"}[$__rate_interval]))")
}

// events counts events in each interval of a graph, by a label.
func events(label, metric, matchers string) query {
	return named(label, "sum by ("+label+") (increase("+metric+"{"+matchers+"}[$__rate_interval]))")
}

// quantile estimates a quantile of a histogram, by labels, which may be none.
func quantile(q, labels, metric, matchers string) string {
	if labels != "" {
		labels = ", " + labels
	}
	return "histogram_quantile(" + q + ", sum by (le" + labels + ") (rate(" + metric + "_bucket{" + matchers + "}[$__rate_interval])))"
}

// quantiles are the median and the 99th percentile of a histogram.
func quantiles(metric, matchers string) []query {
	return []query{{"50 %", quantile("0.5", "", metric, matchers)}, {"99 %", quantile("0.99", "", metric, matchers)}}
}

// since returns for how long something has lasted whose start is the value of a metric, in
// seconds; 0 if the value is 0. labels are those to keep.
func since(labels, metric, matchers string) string {
	series := metric + "{" + matchers + "}"
	return "max by (" + labels + ") ((time() - " + series + ") * (" + series + " > bool 0))"
}
