package deadletters

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

func TestTopic_ListsDeadLettersWithTheStatesOfTheirOrders(t *testing.T) {
	log := &fakeLog{most: 2}
	recent := time.Now()
	for i, id := range []string{"open", "ended", "strange", "open"} {
		log.put(deadTopic, i%2, rawOf(dead(t, id, "failed", now)), recent.Add(time.Duration(i-60)*time.Second))
	}
	event := wire.DeadLetter(wire.Message{Topic: OutboxOfEvents, Key: []byte("ended"), Value: []byte("{}")}, "outbox", "refused", "")
	log.put(deadTopic, 1, event.Raw(), recent)
	log.put(deadTopic, 0, wire.RawRecord{}, recent.Add(-25*time.Hour)) // nothing is known of it
	topic := log.topic()
	topic.Orders = &fakeOrders{unpaid: map[string]bool{"open": true, "ended": false}}
	list := must.Get(topic.List(t.Context(), Filter{}, 10))(t)
	var got []string
	for _, l := range list.Letters {
		got = append(got, fmt.Sprintf("%s %q %v", l.Key, l.Order, l.IsOpen(recent)))
	}
	expect.Same(t, got, []string{`ended "" true`, `open "open" true`, `strange "" true`, `ended "ended" false`, `open "open" true`, ` "" false`},
		"the newest first: key, state of the order, open")
	expect.Equal(t, list.Open.Text(), "3 failed, 1 refused", "open ones")
	list = must.Get(topic.List(t.Context(), Filter{Open: true, Order: "open"}, 1))(t)
	expect.That(t, len(list.Letters) == 1 && list.Letters[0].At == Position{1, 1} && list.More && list.Open["failed"] == 2, "the newest of an order: %+v", list)
	list = must.Get(topic.List(t.Context(), Filter{Since: recent.Add(-time.Hour), Cause: "refused"}, 10))(t)
	expect.That(t, len(list.Letters) == 1 && list.Letters[0].Record.Value == nil, "by time and cause: %+v", list)
}

func TestTopic_FindsADeadLetterWithItsRecord(t *testing.T) {
	log := &fakeLog{}
	log.addDeadLetter(t, 1, "a", "failed", now)
	at := log.addDeadLetter(t, 1, "b", "failed", now)
	log.retain(1, 1)
	topic := log.topic()
	topic.Orders = &fakeOrders{unpaid: map[string]bool{"b": false}}
	l := must.Get(topic.Find(t.Context(), at))(t)
	expect.That(t, l != nil && l.Key == "b" && l.Order == OrderEnded && len(l.Record.Value) > 0, "%+v", l)
	for _, missing := range []Position{{1, 0}, {1, 2}, {0, 0}, {7, 0}} {
		expect.That(t, must.Get(topic.Find(t.Context(), missing))(t) == nil, "there is a dead letter at %v", missing)
	}
}

func TestCounts_CountInvalidCausesAsOther(t *testing.T) {
	c := Counts{}
	for _, cause := range []string{"failed", "a\xff", strings.Repeat("x", maxName+1)} {
		c.add(cause)
	}
	expect.That(t, c["failed"] == 1 && c[Other] == 2, "%d dead letters as other; want 2: %v", c[Other], c)
	for i := range 100 {
		c.add(fmt.Sprint(i))
	}
	expect.That(t, len(c) <= maxCauses+1 && c.Total() == 103, "%d causes, %d in total", len(c), c.Total())
}
