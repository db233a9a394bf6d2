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
	column   string
	most     bool    // the largest value is the best
	bound    float64 // of the own value; 0: none
	margin   float64 // that another way may be ahead by
	against  string  // the ways to compare with; "": all
}

// punctualMS is the greatest p99 of the lateness of a way that is punctual, in milliseconds.
const punctualMS = 1000

// onDisk is the way of orderclose that syncs each record, and synced are those of others that sync each message before they accept it.
const (
	onDisk = "orderclose" + alwaysSyncs
	synced = "rabbitmq rabbitmq-queues rabbitmq-quorum rabbitmq-delayed poll-1s river"
)

var aims = []aim{
	{text: "W1, default: the lowest p99", workload: "w1", column: "p99 ms"},
	{text: "W3, default: the lowest p99", workload: "w3", column: "p99 ms"},
	{text: "W2, default: the highest drain, and at least 300,000/s", workload: "w2", column: "drain /s", most: true, bound: 300_000},
	{text: "W1, each message on the disk: the lowest p99", workload: "w1", own: onDisk, column: "p99 ms", against: synced},
	{text: "W3, each message on the disk: the lowest p99", workload: "w3", own: onDisk, column: "p99 ms", against: synced},
	{text: "W2, each message on the disk: the highest drain", workload: "w2", own: onDisk, column: "drain /s", most: true, against: synced},
	{text: "W7, each message on the disk: nothing acknowledged is lost, and the lowest p99 after the return", workload: "w7", own: onDisk, column: "p99 ms"},
	{text: "W7, default, with the orders in a database: the same", workload: "w7", own: "orderclose-all", column: "p99 ms"},
	{text: "W1, three servers: the lowest p99", workload: "w1", own: "orderclose-3", column: "p99 ms"},
	{text: "W4, server: nothing lost or early, and the shortest gap", workload: "w4", victim: victimServer, column: "gap s"},
	{text: "W4, worker: nothing lost or early, and no gap shorter by more than a second", workload: "w4", victim: victimWorker, column: "gap s", margin: 1},
	{text: "W4, leader of three: nothing lost or early, a gap of 3 s at most, and the shortest", workload: "w4", victim: victimLeader,
		own: "orderclose-3", column: "gap s", bound: 3},
	{text: "W5: no slower than a poller", workload: "w5", column: "last closed s"},
	{text: "W6: the fewest statements on the main database, all roles beside the pollers and River", workload: "w6", own: "orderclose-all",
		column: "queries a minute", against: "poll-1s poll-30s river"},
}

// aims prints a table of aims.
func (p page) aims() string {
	b := "| aim | orderclose | best other | reached, or who is ahead |\n| --- | ---: | ---: | --- |\n"
	for _, a := range aims {
		b += p.aim(a)
	}
	return b
}

func (p page) aim(a aim) string {
	own := p.find(a.workload, cmp.Or(a.own, "orderclose"), a.victim)
	if own == nil {
		return fmt.Sprintf("| %s | | | not measured |\n", a.text)
	}
	mine, best := own.median(a.column), 0.0
	other := "none measured"
	var ahead []string
	for _, g := range p.of(a.workload) {
		if g[0].own() || g[0].Victim != a.victim || a.against != "" && !slices.Contains(strings.Fields(a.against), g[0].System) ||
			onThree(g[0].System) != onThree(a.own) || !p.counts(a.workload, g[0].System) {
			continue
		}
		value := g.median(a.column)
		name := g[0].System + " " + number(value)
		if other == "none measured" || a.better(value, best) {
			best, other = value, name
		}
		if a.better(value+a.margin, mine) {
			ahead = append(ahead, name)
		}
	}
	if n := own.sum("lost") + own.sum("early"); n > 0 {
		ahead = append(ahead, fmt.Sprintf("%d are lost or early", n))
	}
	if a.bound > 0 && a.better(a.bound, mine) {
		ahead = append(ahead, "the bound is "+number(a.bound))
	}
	reached := "yes"
	switch {
	case !own.trusted():
		reached = "not judged: " + own.note()
	case len(ahead) > 0:
		reached = "no: " + strings.Join(ahead, ", ")
	case other == "none measured":
		reached = "not judged: nothing to compare with"
	}
	return fmt.Sprintf("| %s | %s | %s | %s |\n", a.text, number(mine), other, reached)
}

// counts says whether a way keeps what it accepts and is punctual. What was not measured is no reason against it.
func (p page) counts(workload, system string) bool {
	reference := "w1"
	if workload == "w3" {
		reference = workload
	}
	for _, g := range p {
		if g[0].System != system || g[0].LeftOut != "" || g[0].Workload == "w7" && workload != "w7" {
			continue
		}
		if g.sum("lost")+g.sum("early") > 0 || g[0].Workload == reference && g.median("p99 ms") > punctualMS {
			return false
		}
	}
	return true
}

// onThree says whether a way has three servers. Such ways are compared with each other only.
func onThree(system string) bool { return strings.HasSuffix(system, "-3") }

func (a aim) better(v, than float64) bool {
	if a.most {
		return v > than
	}
	return v < than
}
