package main

import (
	"slices"
	"strings"
)

// column is a column of the data of a workload.
type column struct {
	title string
	cell  func(group) string
}

// value is a column of medians.
func value(title string, of func(result) float64) column {
	return column{title, func(g group) string { return plain(g.median(of)) }}
}

// span are two columns: the least and the greatest of the rounds.
func span(title string, of func(result) float64) []column {
	return []column{
		{title + ", fastest round", func(g group) string { return plain(slices.Min(g.values(of))) }},
		{title + ", slowest round", func(g group) string { return plain(slices.Max(g.values(of))) }},
	}
}

// count is a column of sums.
func count(title string, of func(result) int) column {
	return column{title, func(g group) string { return plain(float64(g.sum(of))) }}
}

// plain is number without separators of thousands.
func plain(v float64) string { return strings.ReplaceAll(number(v), ",", "") }

var (
	systemColumn = column{"way", func(g group) string { return g.first().System }}
	noteColumn   = column{"note", group.note}
	fates        = []column{count("early", early), count("lost", lost), count("duplicates", func(r result) int { return r.Duplicates })}
	costs        = []column{
		value("CPU s a million", million),
		value("server CPU s", func(r result) float64 { return r.ServerCPU }), value("client CPU s", func(r result) float64 { return r.ClientCPU }),
		value("server MB", func(r result) float64 { return r.ServerMB }), value("client MB", func(r result) float64 { return r.ClientMB }),
		value("other CPU s", func(r result) float64 { return r.OtherCPU }), noteColumn,
	}
	lateness = []column{
		value("p50 ms", p50), value("p99 ms", p99), value("p99.9 ms", func(r result) float64 { return r.P999 }), value("max ms",
			func(r result) float64 { return r.Max }),
	}
)

func columns(parts ...[]column) (all []column) {
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

// backAfter is when a killed server or worker was back. A leader stays down.
func backAfter(g group) string {
	if victim := g.first().Victim; victim == victimLeader || victim == victimController {
		return ""
	}
	return plain(g.median(func(r result) float64 { return r.RestartS }))
}

var sections = []section{
	{
		workload: "w1", title: "W1: one delay",
		text: "1,000 messages a second for 20 s, each with a delay of 5 s. *Held* is the rate at which they are received. RocketMQ's timers in RocksDB\n" +
			"are early by up to a second. orderclose has the default settings of one broker, as with a database that has the orders: delay topics are\n" +
			"synced before the ack, the close topic each 1,000 records. orderclose-always has `sync: always`.",
		plot:    &plotOf{"W1, one delay: p99 of the lateness, ms", " ms", p99},
		columns: columns([]column{systemColumn, value("held /s", func(r result) float64 { return r.HeldPS })}, lateness, fates, costs),
	},
	{
		workload: "w2", title: "W2: all at once",
		text: "100,000 messages that are due at one instant, published before it. *Drain* is their number divided by the time\n" +
			"from the instant until the last is received. A poller drains faster or slower as the instant falls just before or\njust after a poll.",
		plot: &plotOf{"W2, 100,000 due at one instant: received per second", " /s", drain},
		columns: columns([]column{systemColumn, value("drain /s", drain), value("accepted /s", func(r result) float64 { return r.AcceptedPS })},
			lateness, fates, costs),
	},
	{
		workload: "w3", title: "W3: mixed delays",
		text: "1,000 messages a second for 10 s, with delays of 1 to 10 s, in whole seconds, in random order. RabbitMQ 4.3 delays only what\n" +
			"a worker returns, so the worker of rabbitmq-delayed gets each message twice.",
		plot:    &plotOf{"W3, delays of 1 to 10 s: p99 of the lateness, ms", " ms", p99},
		columns: columns([]column{systemColumn, value("accepted /s", func(r result) float64 { return r.AcceptedPS })}, lateness, fates, costs),
	},
	{
		workload: "w4", title: "W4: a crash",
		text: "W1, and in its middle `kill -9` of the server or of the worker, which is started again at once. The worker is the\n" +
			"process that looks for due messages or receives them; of orderclose it is the relay. Of the ways with three servers the\n" +
			"*leader* is killed, and it stays down; the *controller* is a broker that is also the active controller. *Gap* is the longest\n" +
			"time without a message after the kill. A message is lost if it was accepted and is not received 100 s after the last due\n" +
			"time; a poller has its interval more. What limits the gap of three servers:\n\n" +
			"- orderclose-3: Kafka's controller waits until the session of the killed broker ends, 2 s here. A killed controller costs\n" +
			"  an election before, and then the session begins again.\n" +
			"- rabbitmq-3: only the election. A machine that disappears, which is not measured here, closes no connections.\n" +
			"- nats-3: a replica waits 4 to 9 s, at random, for a heartbeat of the leader before it stands for election.\n" +
			"- redis-3: the Sentinels wait for down-after-milliseconds, 2 s here. A write is acknowledged before a replica has it, so\n" +
			"  it may be lost with the master; in these rounds nothing was lost.",
		plot: &plotOf{"W4, kill -9: the longest time without a message, s", " s", gap},
		columns: columns([]column{
			systemColumn, {"killed", func(g group) string { return g.first().Victim }}, value("gap s", gap), {"back after s", backAfter},
			count("accepted", func(r result) int { return r.Messages - r.Refused }),
		}, fates, []column{value("p99 ms", p99), value("max ms", func(r result) float64 { return r.Max }), value("other CPU s",
			func(r result) float64 { return r.OtherCPU }), noteColumn}),
	},
	{
		workload: "w5", title: "W5: closed orders",
		text: "100,000 orders of two lines are due at one instant. They are closed with their stock in MariaDB or PostgreSQL: by the whole\n" +
			"pipeline (relay, closer and outbox), and by others in the same transaction. River's batches are in River Pro only;\n" +
			"river-batches closes 500 of its jobs in a transaction.\n" +
			"If the rounds of two ways overlap, neither is shown to be the faster one.",
		plot: &plotOf{"W5, 100,000 orders due at one instant: s until the last is closed", " s", lastClosed},
		columns: columns([]column{
			systemColumn, value("half closed s", func(r result) float64 { return r.HalfClosedS }), value("last closed s", lastClosed),
		}, span("last closed s", lastClosed), []column{
			{"CPU s a million", func(g group) string {
				counted := slices.DeleteFunc(slices.Clone(g), func(r result) bool { return r.AllCPU == 0 }) // older rounds have none
				if len(counted) == 0 {
					return ""
				}
				return plain(counted.median(million))
			}}, value("CPU s of the closing programs", func(r result) float64 { return r.ServerCPU }),
			value("MB of the largest", func(r result) float64 { return r.ServerMB }), noteColumn,
		}),
	},
	{
		workload: "w6", title: "W6: a million waiting",
		text: "A million messages wait for 30 minutes. The way is watched for a minute in which nothing is due. *Queries* are statements on\n" +
			"the shop's main database, for River transactions. Orderclose is here twice: the relay alone, and all its roles with MariaDB\n" +
			"and Redis; its hourly sweep is not in this minute. Of the statements of all roles, 60 ask whether a row of the outboxes waits,\n" +
			"and some fifteen try whether the database takes writes.",
		plot: &plotOf{"W6, a million waiting: CPU of the server, % of one core", " %", serverIdle},
		columns: []column{
			systemColumn, value("server % of a core", serverIdle), value("worker %", clientIdle), value("server MB", func(r result) float64 { return r.ServerMB }),
			value("worker MB", func(r result) float64 { return r.ClientMB }), value("disk MB", disk), value("queries a minute", queries),
			value("other CPU s", func(r result) float64 { return r.OtherCPU }), noteColumn,
		},
	},
	{
		workload: "w7", title: "W7: a cut of power",
		text: "1,000 messages a second for 20 s, with a delay of 10 s. In the middle the power of all servers is cut at once, and they start again\n" +
			"on what they have synced: the kernel would write the rest after some 30 s. *Lost* is as in W4. *Overdue* is the time from the return until\n" +
			"the last message came that was due before it; p99 and maximum are of messages due 5 s after it or later.\n\n" +
			"orderclose-always has no database, so it sets `sync: always`. With `sync: never` it loses records; orderclose-all, whose orders are in\n" +
			"MariaDB, closes all with the default; its message is the event, for which the outbox rests 100 ms after each batch.\n" +
			"nats and rocketmq acknowledge before they sync, redis syncs once a second, and nats-always falls behind.",
		plot: &plotOf{"W7, power cut: acknowledged messages lost", "", func(r result) float64 { return float64(r.Lost) }},
		columns: columns([]column{
			systemColumn, count("acknowledged before the cut", acknowledged),
		}, fates, []column{
			value("back after s", func(r result) float64 { return r.RestartS }), value("overdue s", overdue), value("p99 ms", p99),
			value("max ms", func(r result) float64 { return r.Max }), value("other CPU s", func(r result) float64 { return r.OtherCPU }), noteColumn,
		}),
	},
}

const pageHead = `# Comparison

This page compares orderclose with what a user would run instead, on the same workloads. ` + "`make bench-peers`" + `
measures and writes it; [bench/peers/README.md](../bench/peers/README.md) says how, and
[results.jsonl](../bench/peers/results.jsonl) has each round. A number is the median of the rounds.
Lateness is the time of receipt minus the due time. *Early* has no tolerance beyond the millisecond.

`

const pollerText = `## When a plain poller is the better choice

A query each second is the better choice if all of this is true:

- An order may close a second or more after its due time.
- The database has room for the query, and an index on status and due time.
- One process at a time polls, or the query uses SKIP LOCKED.
- You run no Kafka yet. A poller has no further server, and nothing that can be lost.

Then run [orderclose run sweeper](sweeper.md), which is orderclose-sweeper in W5. It closes in the transaction of the pipeline, with
receipts, stock, payments, audit and console, and is as late as poll-1s, poll-3s and poll-5s. It takes
20 s for 100,000 orders, because it leaves the database to checkouts: at most 5,000 orders a second (compensator.rate).
[Moving to the pipeline](sweeper.md#moving-to-the-pipeline) later changes no table.

The pipeline pays if orders must close within milliseconds, if many are due at once while the database is
busy, or if a query each second costs too much, such as with tables for each month.

## Expiry on read

The cheapest way is to close nothing: a page compares the due time of an unpaid order, and a checkout counts only what
unexpired orders reserve. But every query on stock adds up reservations, no event tells the coupon, the warehouse or the customer
that the order has ended, and a payment that is under way is not cancelled. It goes well beside a pipeline: package sqlclose closes
an overdue order when it is read, with the same receipt.

`
