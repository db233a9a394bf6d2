package bubble

import (
	"fmt"
	"strings"
	"time"

	"orderclose"
	"orderclose/internal/checker"
)

// judgeAppends holds two bounds for each order. arrivals are its records in the close
// topic and the replay topic, appends those in delay topics.
//
// Hops: a record that arrives has taken at most its planned hops, two more, and one more
// for each step of a clock. Where clocks are right and the list of buckets stays, no world
// needs the two for more than one record of an order. Where clocks are wrong, a record of
// an order that is paid may still wait when the world ends, and has not arrived.
//
// Repeats: a record arrives for each publication of its order, and once more for each
// fault, which may have what was in flight repeated, and for the first start, which is
// taken for a loss. Each of these is tried again once, a minute later, where closing may
// fail; is scheduled again once where it may come too soon, by the database's clock; and
// is sent again by each replay. Where records were deleted from the logs, those
// that arrived are not all there: the bound of repeats is then that of hops too.
func (w *chaosWorld) judgeAppends(v *checker.Verdict, forgotten bool) {
	p := w.plan
	planned := w.mostHops()
	faults := p.repeats(planned)
	hops, waiting, rounds := planned, 0, 1+int(w.replays.Load())
	if p.has("reload") {
		hops += 2 // processes may go by two lists for a while
	}
	if p.has(clocks...) || !p.oneBrokerClock() {
		hops, waiting, rounds = hops+2+p.steps(), 1, rounds*2
	}
	if p.has("service", "database") {
		rounds *= 2
	}
	for _, e := range p.Events {
		if e.Kind != "order" {
			continue
		}
		id := fmt.Sprintf("order-%02d", e.N)
		most := (p.publications(e) + 1 + faults) * rounds
		if e.Then == later {
			most *= 2 // the closer schedules each of its records again
		}
		if e.Then == later && p.has("answers") {
			// The closer schedules each record again that a relay repeats, and cannot commit
			// that either while brokers refuse commits.
			most *= 1 + faults
		}
		arrivals := v.Arrivals[id]
		if arrivals > most {
			w.blame("repeats", "%s arrived %d times, at most %d are right", id, arrivals, most)
		}
		if forgotten {
			arrivals = most
		}
		if n, most := v.Appends[id], hops*(arrivals+waiting)+2; n > most {
			w.blame("hops", "%s took %d appends to delay topics for %d arrivals, at most %d are right", id, n, arrivals, most)
		}
	}
}

// mostHops is how many hops are planned for a record at most, by any list of buckets.
func (w *chaosWorld) mostHops() (most int) {
	longest := 25 * time.Second // of all delays, and of what remains where a deadline moves
	if w.plan.has("service", "database") {
		longest = 66 * time.Second // before an order is tried again, or the provider is asked again
		if w.plan.has("broker-clock", "database-clock") {
			longest = 264 * time.Second // a clock that steps forward brings all three tries into the window
		}
	}
	lists := []orderclose.Buckets{w.config().Buckets}
	if w.file != nil {
		lists = w.file.lists
	}
	for _, list := range lists {
		most = max(most, list.MostHops(longest))
	}
	return most
}

// publications is how often a world publishes an order.
func (p *plan) publications(order event) int {
	n := 1 // unpublished: after a loss it is scheduled again
	if order.How == twice {
		n++
	}
	if order.Then == earlier {
		n++ // by the shop
	}
	for _, e := range p.Events {
		if e.Kind == "again" && e.N == order.N {
			n++
		}
	}
	return n
}

// againTime is how soon, at the least, a process tries again what a broker refuses while
// it answers wrongly: a group that joins again repeats what it could not commit, and a
// broker may refuse what it has appended.
const againTime = 50 * time.Millisecond

// repeats is how often what is in flight may be repeated.
func (p *plan) repeats(planned int) (n int) {
	for _, e := range p.Events {
		switch {
		case e.Kind == "order":
		case e.Kind == "answers":
			n += fewAnswers + int(e.For/againTime)
		case e.Kind == "offsets":
			n += planned // a topic has a record for each hop
		default:
			n++
		}
	}
	return n
}

// steps is how often a clock is set, and set right again.
func (p *plan) steps() (n int) {
	for _, e := range p.Events {
		if strings.HasSuffix(e.Kind, "-clock") {
			n += 2
		}
	}
	return n
}
