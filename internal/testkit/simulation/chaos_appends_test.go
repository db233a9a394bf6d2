package simulation

import (
	"fmt"
	"strings"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/testkit/checker"
)

// checkAppends checks two bounds for each order. arrivals are its records in the close topic and the replay topic, appends its records in delay topics.
//
// Hops: a record that arrives has taken at most its planned hops, two more, and one more for each step of a clock. If clocks are right and the list of
// buckets does not change, at most one record of an order needs the two. If clocks are wrong, a record of a paid order may still wait when the world
// ends, and has not arrived.
//
// Repeats: a record arrives once for each publication of its order, once more for each fault, which may repeat what was in flight (once for each broker,
// if connections are half-open), and once more for the first start, which counts as a loss. Each of these records is retried once, a minute later, if
// closing may fail. It is scheduled again once if it may come too soon by the database's clock, and replayed once by each replay. If records were
// deleted from the logs, not all arrivals are known: the bound of repeats then also bounds the hops.
func (w *chaosWorld) checkAppends(v *checker.Verdict, forgotten bool) {
	p := w.plan
	planned := w.mostHops()
	faults := p.repeats(planned)
	hops, waiting, rounds := planned, 0, 1+int(w.replays.Load())
	if p.has("reload") {
		hops += 2 // processes may use two lists of buckets for a while
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
			most *= 2 // the closer schedules each of the order's records again
		}
		if e.Then == later && p.has("answers") {
			// The closer schedules each record again that a relay repeats, and it cannot commit that while brokers reject commits.
			most *= 1 + faults
		}
		arrivals := v.Arrivals[id]
		if arrivals > most {
			w.violation("repeats", "%s arrived %d times, at most %d are allowed", id, arrivals, most)
		}
		if forgotten {
			arrivals = most
		}
		if n, most := v.Appends[id], hops*(arrivals+waiting)+2; n > most {
			w.violation("hops", "%s took %d appends to delay topics for %d arrivals, at most %d are allowed", id, n, arrivals, most)
		}
	}
}

// mostHops returns the most hops that any list of buckets plans for a record.
func (w *chaosWorld) mostHops() (most int) {
	longest := 25 * time.Second // of all delays, and of the remaining time after a deadline moves
	if w.plan.has("service", "database") {
		longest = 66 * time.Second // until an order is retried, or the payment provider is asked again
		if w.plan.has("broker-clock", "database-clock") {
			longest = 264 * time.Second // a clock that steps forward brings all three tries into the window
		}
	}
	lists := []orderclose.Buckets{w.config().Buckets}
	if w.file != nil {
		lists = w.file.lists
	}
	for _, list := range lists {
		most = max(most, longestWalk(list, longest))
	}
	return most
}

// publications returns how often a world publishes an order.
func (p *plan) publications(order event) int {
	n := 1 // an unpublished order is scheduled after a loss
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

// retryPause is the shortest time after which a process retries while a broker answers wrongly. A group member that joins again repeats what it could
// not commit, and a broker may append records and answer with an error.
const retryPause = 50 * time.Millisecond

// repeats returns how often records in flight may be repeated.
func (p *plan) repeats(planned int) (n int) {
	for _, e := range p.Events {
		switch {
		case e.Kind == "order":
		case e.Kind == "answers":
			n += fewAnswers + int(e.For/retryPause)
		case e.Kind == "offsets":
			n += planned // a topic has a record for each hop
		case e.Kind == "half-open":
			n += p.Brokers // the connections to each broker are found to be dead on their own
		default:
			n++
		}
	}
	return n
}

// steps returns how often a clock is set, wrong or right.
func (p *plan) steps() (n int) {
	for _, e := range p.Events {
		if strings.HasSuffix(e.Kind, "-clock") {
			n += 2
		}
	}
	return n
}
