package main

import "strings"

// Label matchers of the queries. everywhere limits a query to the chosen scrape jobs, here also to
// the chosen processes. Metrics of the whole pipeline, such as what waits in Kafka, come from any
// compensator: they are read everywhere.
const (
	everywhere = `job=~"$job"`
	here       = `job=~"$job",instance=~"$instance"`
)

// Heights of rows. A stat needs less than a graph.
const (
	statHeight  = 4
	graphHeight = 7
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
var jobs = variable{"job", "Job", "orderclose_config_last_reload_successful", ".+"}

// dashboards returns all dashboards: the overview, the stages as an order passes through them, and those of rooms.
func dashboards() []dashboard {
	return append([]dashboard{
		overviewDashboard(), outboxDashboard(), relayDashboard(), closerDashboard(), compensatorDashboard(), sweeperDashboard(),
	}, roomDashboards()...)
}

// overviewDashboard shows the promises on one screen: their numbers are those of README.md.
func overviewDashboard() dashboard {
	return dashboard{
		file: "overview.json", uid: "orderclose-overview", title: "orderclose: overview",
		shows: "The promises of orderclose on one screen. A number in a title is the promise that the panel watches: " +
			"1 never early, 2 never lost, 3 never twice, 4 on time, 5 never silent.",
		variables: []variable{jobs},
		rows: []row{
			{height: statHeight, panels: []panel{
				{
					title: "1 Early", kind: "stat", unit: "short", red: anyAtAll, runbook: "Something was early",
					shows: "Orders that were closed before they were due, by the database's clock, in the time range.",
					good:  "0, always. An early record only waits in the closer.",
					queries: []query{
						{"Orders", count("orderclose_close_early_total", everywhere)},
					},
				},
				{
					title: "2 Overdue", kind: "stat", unit: "s", red: 30, runbook: "Records do not leave a delay topic",
					shows: "By how much the most overdue record is overdue: as a compensator reads it in Kafka, and as the relays report it themselves.",
					good:  "below 1 s.",
					queries: []query{
						{"In Kafka", "max(orderclose_waiting_overdue_seconds{" + everywhere + "})"},
						{"In relays", "clamp_min(" + since("", "orderclose_delay_head_due_timestamp_seconds", everywhere) + ", 0)"},
					},
				},
				{
					title: "2 Missed", kind: "stat", unit: "short", red: 10, runbook: "The compensator finds orders",
					shows:   "Orders that compensators closed, in the time range, because the pipeline had missed them.",
					good:    "0 or hardly more. Such orders close half a minute late.",
					queries: []query{{"Orders", count("orderclose_compensator_found_total", everywhere+`,kind="missed"`)}},
				},
				{
					title: "2 Compensator", kind: "stat", unit: "s", red: 120, runbook: "The compensator is late",
					shows:   "For how long an order may be overdue that the compensator has not tried to close.",
					good:    "below 30 s.",
					queries: []query{{"Late", "clamp_min(" + since("", "orderclose_compensator_unasked_since_timestamp_seconds", everywhere) + ", 0)"}},
				},
				{
					title: "2 Lost by Kafka", kind: "stat", unit: "short", red: anyAtAll, runbook: "The log has lost records",
					shows:   "Records that were gone before they were read, in the time range: by retention, by a log that lost its end, or by a topic that was recreated.",
					good:    "0. The compensator closes the orders within half a minute.",
					queries: []query{{"Records", count("orderclose_retention_lost_records_total", everywhere)}},
				},
				deadLettersPending("2 Dead letters"),
			}},
			{height: statHeight, panels: []panel{
				{
					title: "3 Repeated", kind: "stat", unit: "short", runbook: "Records are duplicated",
					shows: "Attempts to close an order that was closed or cancelled before, and records that may have been appended to Kafka twice, " +
						"in the time range. The transaction of such an attempt changes nothing: each order has one receipt.",
					good: "hardly any closes outside of replays, and a few records. " +
						"orderclose audit proves that nothing was closed or returned twice.",
					queries: []query{
						{"Closes", count("orderclose_close_total", everywhere+`,result="already_closed"`)},
						{"Records", count("orderclose_possible_duplicates_total", everywhere)},
					},
				},
				{
					title: "5 Not checked", kind: "stat", unit: "short", red: 1, runbook: "First look",
					shows:   "Topics and partitions that a compensator could not check for waiting records. Something overdue there would go unnoticed.",
					good:    "0. orderclose status says why.",
					queries: []query{{"Topics and partitions", "max(orderclose_waiting_unseen{" + everywhere + "})"}},
				},
				{
					title: "5 Failing for", kind: "stat", unit: "s", red: 60, runbook: "A partition cannot be read", also: "The database takes no writes",
					shows: "For how long fetches of a partition have failed, and for how long the database has refused the writes of a close.",
					good:  "0.",
					queries: []query{
						{"Fetches", since("", "orderclose_fetch_failing_since_timestamp_seconds", everywhere)},
						{"Database writes", "max(orderclose_database_write_failing_seconds{" + everywhere + "})"},
					},
				},
				{
					title: "5 Configuration", kind: "stat", unit: "short", red: 1, runbook: "topics.yaml was refused", also: "Topics differ",
					shows: "Processes that refused a changed topics.yaml and keep the previous one, differences between the topics and topics.yaml, " +
						"and delays that have fallen by half or more within a day.",
					good: "0.",
					queries: []query{
						{"Refused", "sum(1 - orderclose_config_last_reload_successful{" + everywhere + "})"},
						{"Topics differ", "max(orderclose_topic_drift{" + everywhere + "})"},
						{"Delays fell", "count(" + delaysFell + ") or vector(0)"},
					},
				},
				{
					title: "5 Processes", kind: "stat", unit: "short", green: 1, runbook: "First look",
					shows: "Processes that run each role, by their own metrics. A role that no process runs reports nothing else.",
					good:  "at least 1 of each, 2 to survive the loss of a machine.",
					queries: []query{
						{"Relays", "count(count by (instance) (orderclose_delay_head_due_timestamp_seconds{" + everywhere + "})) or vector(0)"},
						{"Closers", "count(orderclose_close_concurrency_limit_orders{" + everywhere + "} > 0) or vector(0)"},
						{"Compensators", "count(orderclose_compensator_every_seconds{" + everywhere + "} > 0) or vector(0)"},
						{"Dispatchers", "count(count by (instance) (orderclose_outbox_rows{" + everywhere + "})) or vector(0)"},
					},
				},
			}},
			{height: graphHeight, panels: []panel{
				{
					title: "4 Lateness of closes", kind: "timeseries", unit: "s", runbook: "The closer is behind", also: "Records do not leave a delay topic",
					shows: "How long after its due time an order was closed, by the database's clock, without those that compensators closed: " +
						"half of the orders, and 99 of 100, are closed sooner.",
					good:    "milliseconds. No line: no order was closed.",
					queries: quantiles("orderclose_close_end_to_end_lateness_seconds", everywhere+`,path="pipeline"`),
				},
				categories("4 Lateness by category", everywhere),
				{
					title: "2 Overdue orders", kind: "timeseries", unit: "short", runbook: "Orders are overdue in the database",
					shows:   "Unpaid orders that have been due in the database for more than 5 s, whatever Kafka has. 1000 are counted at most.",
					good:    "0, or a few that are retried. No value: no compensator counts.",
					queries: []query{{"Orders", "max(sum without (category) (orderclose_overdue_orders{" + everywhere + "}))"}},
				},
			}},
			{height: graphHeight, panels: []panel{
				{
					title: "Closed orders per second", kind: "timeseries", unit: "short", runbook: "The closer is behind",
					shows:   "Orders that were closed, by the pipeline and by sweeps.",
					good:    "the rate at which unpaid orders become due. Sweeps close almost none.",
					queries: []query{{"{{path}}", "sum by (path) (rate(orderclose_close_total{" + everywhere + `,result="closed"}[$__rate_interval]))`}},
				},
				waiting(`topic=~".+"`),
				farthest(`topic=~".+"`),
			}},
		},
	}
}

// count counts events in the time range of the dashboard.
func count(metric, matchers string) string {
	return "sum(increase(" + metric + "{" + matchers + "}[$__range]))"
}

// perSecond counts events per second, by a label.
func perSecond(label, metric, matchers string) string {
	return "sum by (" + label + ") (rate(" + metric + "{" + matchers + "}[$__rate_interval]))"
}

// events counts events in each interval of a graph, by labels.
func events(labels, metric, matchers string) string {
	return "sum by (" + labels + ") (increase(" + metric + "{" + matchers + "}[$__rate_interval]))"
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

func categories(title, matchers string) panel {
	return panel{
		title: title, kind: "timeseries", unit: "s", runbook: "The closer is behind",
		shows: "How long after its due time an order was closed: 99 of 100 orders of the category are closed sooner. " +
			"Categories that topics.yaml does not list are counted as default.",
		good:    "milliseconds, and alike in all categories. A category without a line: none of its orders was closed.",
		queries: []query{{"{{category}}", quantile("0.99", "category", "orderclose_close_end_to_end_lateness_seconds", matchers+`,path="pipeline"`)}},
	}
}

// waiting shows what waits in the topics that the matcher selects.
func waiting(topics string) panel {
	return panel{
		title: "Waiting records", kind: "timeseries", unit: "short", runbook: "First look",
		shows:   "Records that wait in each topic, as a compensator reads it from Kafka every minute. Records wait in a bucket on purpose.",
		good:    "the number of open orders, and no topic that only grows. The close topic: near 0.",
		queries: []query{{"{{topic}}", "max by (topic) (orderclose_waiting_records{" + everywhere + "," + topics + "})"}},
	}
}

// farthest shows how far ahead records are due in the topics that the matcher selects.
func farthest(topics string) panel {
	return panel{
		title: "Farthest due", kind: "timeseries", unit: "s", runbook: "A producer picks the wrong bucket",
		shows: "How far ahead the latest due time in each topic lies, of the records that a compensator reads every minute: " +
			"the first and the last of each partition, and samples between.",
		good:    "at most the longest delay in topics.yaml. Far more: a producer computes wrong due times.",
		queries: []query{{"{{topic}}", "max by (topic) (orderclose_waiting_farthest_due_seconds{" + everywhere + "," + topics + "})"}},
	}
}

// deadLettersPending is 0, and not empty, if the dead letters were counted and none is pending.
func deadLettersPending(title string) panel {
	return panel{
		title: title, kind: "stat", unit: "short", red: 1, runbook: "Dead letters",
		shows: "Dead letters that are neither redriven nor discarded.",
		good:  "0. No value: no process counts them.",
		queries: []query{{"Pending", "sum(max by (cause) (orderclose_dead_letters_pending{" + everywhere + "})) or " +
			"0 * max(orderclose_dead_letters_read_timestamp_seconds{" + everywhere + "})"}},
	}
}

// partitions are the variables of a stage that reads partitions: its processes and its topics.
func partitions(stage, topics string) []variable {
	const series = "orderclose_fetch_failing_since_timestamp_seconds"
	of := `,stage="` + stage + `"}`
	return []variable{jobs, {"instance", "Process", series + "{" + everywhere + of, ""}, {"topic", topics, series + "{" + here + of, ""}}
}

// stageFailures are the panels of what may go wrong in a stage that reads partitions.
func stageFailures(stage string) []row {
	topics := here + `,topic=~"$topic"`
	of := topics + `,stage="` + stage + `"`
	return []row{
		{title: "Failures", height: graphHeight, panels: []panel{
			{
				title: "Fetches fail", kind: "timeseries", unit: "s", runbook: "A partition cannot be read",
				shows:   "For how long fetches have failed, by topic: the partition that has failed longest.",
				good:    "0.",
				queries: []query{{"{{topic}}", since("topic", "orderclose_fetch_failing_since_timestamp_seconds", of)}},
			},
			{
				title: "Lost records", kind: "timeseries", unit: "short", runbook: "The log has lost records",
				shows:   "Records that were gone before this stage read them, by topic.",
				good:    "0.",
				queries: []query{{"{{topic}}", events("topic", "orderclose_retention_lost_records_total", topics)}},
			},
			{
				title: "Loops that hung", kind: "timeseries", unit: "short", runbook: "A partition was stuck",
				shows:   "Loops of partitions that hung and were restarted, by topic.",
				good:    "0.",
				queries: []query{{"{{topic}}", events("topic", "orderclose_partition_stuck_total", of)}},
			},
			deadLetters(stage),
		}},
	}
}

func deadLetters(stage string) panel {
	return panel{
		title: "Dead letters", kind: "timeseries", unit: "short", runbook: "Dead letters",
		shows: "Records that this stage gave up: all, and those causes that there were. A record that is read again counts again.",
		good:  "0.",
		queries: []query{
			{"all", events("stage", "orderclose_dead_letters_total", here+`,stage="`+stage+`"`)},
			{"{{cause}}", events("cause", "orderclose_dead_letters_total", here+`,stage="`+stage+`"`) + " > 0"},
		},
	}
}

func duplicates() panel {
	return panel{
		title: "Possible duplicates", kind: "timeseries", unit: "short", runbook: "Records are duplicated",
		shows:   "Records that may have been appended twice, by process. Duplicates are harmless.",
		good:    "a few.",
		queries: []query{{"{{instance}}", events("instance", "orderclose_possible_duplicates_total", here)}},
	}
}

// process is the row of what the chosen processes use.
func process() row {
	return row{title: "Processes", height: graphHeight, panels: []panel{
		{
			title: "Memory", kind: "timeseries", unit: "bytes", runbook: "First look",
			shows: "Memory of each process, and the part of it that the Go heap uses.",
			good:  "level over days. Windows and buffers have limits, so a backlog adds tens of megabytes.",
			queries: []query{
				{"{{instance}}", "process_resident_memory_bytes{" + here + "}"},
				{"{{instance}} heap", "go_memstats_heap_inuse_bytes{" + here + "}"},
			},
		},
		{
			title: "CPU", kind: "timeseries", unit: "short", runbook: "First look",
			shows:   "Cores that each process uses.",
			good:    "well below the cores of its machine or its limit.",
			queries: []query{{"{{instance}}", perSecond("instance", "process_cpu_seconds_total", here)}},
		},
		{
			title: "Goroutines", kind: "timeseries", unit: "short", runbook: "First look",
			shows:   "Goroutines of each process. Each partition takes a few.",
			good:    "level. A number that only grows is a bug.",
			queries: []query{{"{{instance}}", "go_goroutines{" + here + "}"}},
		},
		{
			title: "Open files", kind: "timeseries", unit: "percentunit", runbook: "First look",
			shows:   "Open files and connections of each process, as a share of the number that it may open.",
			good:    "below 80 %.",
			queries: []query{{"{{instance}}", "process_open_fds{" + here + "} / process_max_fds{" + here + "}"}},
		},
	}}
}
