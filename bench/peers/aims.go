package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// aim is what the project wants to reach in a workload.
type aim struct {
	text     string
	workload string
	victim   string
	own      string // the way; default: orderclose
	of       func(result) float64
	most     bool    // the largest value is the best
	atLeast  float64 // 0: no bound
	atMost   float64 // 0: no bound
	bound    string  // why a bound is missed
	// margin is what another way may be ahead by.
	margin float64
	// against are the ways to compare with; nil: all.
	against []string
}

// punctualMS is the greatest p99 of the lateness of a way that is punctual, in milliseconds.
const punctualMS = 1000

// onDisk is the way of orderclose that syncs each record, and synced are those of others that sync each message before they accept it.
const onDisk = "orderclose" + alwaysSyncs

var synced = []string{"rabbitmq", "rabbitmq-queues", "rabbitmq-quorum", "rabbitmq-delayed", "poll-1s", "poll-3s", "poll-5s", "river"}

var aims = []aim{
	{text: "W1, default: the lowest p99", workload: "w1", of: p99},
	{text: "W3, default: the lowest p99", workload: "w3", of: p99},
	{text: "W2, default: the highest drain, and at least 300,000/s", workload: "w2", of: drain, most: true, atLeast: 300_000, bound: reasons["w2"]["*"]},
	{text: "W1, each message on the disk: the lowest p99", workload: "w1", own: onDisk, of: p99, against: synced},
	{text: "W3, each message on the disk: the lowest p99", workload: "w3", own: onDisk, of: p99, against: synced},
	{text: "W2, each message on the disk: the highest drain", workload: "w2", own: onDisk, of: drain, most: true, against: synced},
	{text: "W7, each message on the disk: nothing acknowledged is lost, and the lowest p99 after the return", workload: "w7", own: onDisk, of: p99},
	{text: "W7, default, with the orders in a database: the same", workload: "w7", own: "orderclose-all", of: p99},
	{text: "W1, three servers: the lowest p99", workload: "w1", own: "orderclose-3", of: p99},
	{text: "W4, server: nothing lost or early, and the shortest gap", workload: "w4", victim: victimServer, of: gap},
	{text: "W4, worker: nothing lost or early, and no gap shorter by more than a second", workload: "w4", victim: victimWorker, of: gap, margin: 1},
	{text: "W4, leader of three: nothing lost or early, a gap of 3 s at most, and the shortest",
		workload: "w4", victim: victimLeader, own: "orderclose-3", of: gap, atMost: 3,
		bound: "Kafka's controller elects leaders when the session of the killed broker has ended, and then their clients look for them"},
	{text: "W5: no slower than a poller", workload: "w5", of: lastClosed},
	{text: "W6: the fewest statements on the main database, all roles beside the pollers and River", workload: "w6", own: "orderclose-all", of: queries,
		against: []string{"poll-1s", "poll-3s", "poll-5s", "poll-30s", "cron", "river"}},
}

// reasons say why a way is ahead, by the workload.
var reasons = map[string]map[string]string{
	"w1": {
		"rabbitmq-3": "three brokers and the relay share two cores, and two followers fetch each of the two appends of a record",
		"*":          oneHop,
	},
	"w2": {"*": "broker, relay and reader share the cores"},
	"w3": {"*": oneHop},
	"w4": {
		"rabbitmq-3": "its nodes elect another leader as soon as the connection to a killed process is closed; " +
			"Kafka's controller waits until the session of the broker ends",
		"*": "Redis, MariaDB and small programs are back in a fraction of a second. A killed Kafka broker without replicas is back after " +
			"some 12 s: for 9 s it waits until its own former session ends (broker.session.timeout.ms)",
	},
	"w5": {"*": "it reads the database only, without a relay and a consumer group beside it on the same cores"},
	"w6": {"*": "most of its statements are the polls of the outboxes, one a second for both, by primary key; " +
		"a poller with a long interval asks less often, and is late by it"},
	"w7": {"*": oneHop},
}

// oneHop is why a way is ahead that has one server and no relay.
const oneHop = "one server holds the message; a record of orderclose passes the relay and two appends to Kafka on the same cores"

func reasonFor(workload, system string) string {
	if why := reasons[workload][system]; why != "" {
		return why
	}
	return reasons[workload]["*"]
}

// aims prints a table of aims, and why one is not reached.
func (p page) aims() string {
	b := "## Who is ahead\n\nAnother way counts if it loses nothing in W1 to W6 (for the aim of W7, in all), is never early, and has a p99 of at most 1 s\n" +
		"in W1 (for the aim of W3, in W3).\n\n| aim | orderclose | best other | reached |\n| --- | ---: | ---: | --- |\n"
	for _, a := range aims {
		b += p.aim(a)
	}
	return b + "\n"
}

func (p page) aim(a aim) string {
	own := p.find(a.workload, cmp.Or(a.own, "orderclose"), a.victim)
	if own == nil {
		return fmt.Sprintf("| %s | | | not measured |\n", a.text)
	}
	mine := own.median(a.of)
	var best group
	var ahead []lead
	for _, g := range p.of(a.workload) {
		first := g.first()
		if first.own() || first.Victim != a.victim || a.against != nil && !slices.Contains(a.against, first.System) ||
			onThree(first.System) != onThree(a.own) || !p.counts(a.workload, first.System) {
			continue
		}
		if best == nil || a.better(g.median(a.of), best.median(a.of)) {
			best = g
		}
		if a.better(g.median(a.of)+a.margin, mine) {
			ahead = append(ahead, lead{fmt.Sprintf("%s (%s)", first.System, number(g.median(a.of))), reasonFor(a.workload, first.System)})
		}
	}
	var misses []string
	if own.sum(lost)+own.sum(early) > 0 {
		misses = append(misses, fmt.Sprintf("%d lost, %d early", own.sum(lost), own.sum(early)))
	}
	if mine < a.atLeast {
		misses = append(misses, "below "+number(a.atLeast)+", because "+a.bound)
	}
	if a.atMost > 0 && mine > a.atMost {
		misses = append(misses, "above "+number(a.atMost)+", because "+a.bound)
	}
	misses = append(misses, merged(ahead)...)
	other := "none measured"
	reached := "yes"
	switch first := own.first(); {
	case first.Quick || first.disturbed():
		reached = "not judged: " + own.note()
	case len(misses) > 0:
		reached = "no: " + strings.Join(misses, "; ")
	case best == nil:
		reached = "not judged: nothing to compare with"
	}
	if best != nil {
		other = fmt.Sprintf("%s %s", best.first().System, number(best.median(a.of)))
	}
	return fmt.Sprintf("| %s | %s | %s | %s |\n", a.text, number(mine), other, reached)
}

// counts says whether a way keeps what it accepts and is punctual. What was not measured is no reason against it.
func (p page) counts(workload, system string) bool {
	reference := "w1"
	if workload == "w3" {
		reference = workload
	}
	for _, g := range p.groups {
		first := g.first()
		if first.Workload == "w7" && workload != "w7" {
			continue
		}
		if first.System == system && g.leftOut() == "" && (g.sum(lost)+g.sum(early) > 0 || first.Workload == reference && g.median(p99) > punctualMS) {
			return false
		}
	}
	return true
}

// onThree says whether a way has three servers. Ways with one are compared with others of one.
func onThree(system string) bool { return strings.HasSuffix(system, "-3") }

func (a aim) better(v, than float64) bool {
	if a.most {
		return v > than
	}
	return v < than
}

// lead is a way that is ahead, and why.
type lead struct{ way, why string }

// merged joins ways that are ahead for the same reason.
func merged(ahead []lead) (texts []string) {
	byWhy := map[string][]string{}
	var order []string
	for _, a := range ahead {
		if byWhy[a.why] == nil {
			order = append(order, a.why)
		}
		byWhy[a.why] = append(byWhy[a.why], a.way)
	}
	for _, why := range order {
		text := "ahead: " + strings.Join(byWhy[why], ", ")
		if why != "" {
			text += ", because " + why
		}
		texts = append(texts, text)
	}
	return texts
}
