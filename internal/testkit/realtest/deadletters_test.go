package realtest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/examples/checkout/shopdb"
	"github.com/orderclose/orderclose/internal/deadletters"
	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/runbook"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
	"github.com/orderclose/orderclose/internal/wire"
)

// The order is published before it is in the database and is given up for that. It is closed when it is sent again, and its dead letter ends
// with it. That of an event and the unreadable one stay open.
func TestReal_ADeadLetterEndsWithItsOrder(t *testing.T) {
	eachDatabase(t, aDeadLetterEndsWithItsOrder)
}

func aDeadLetterEndsWithItsOrder(t *testing.T, servers environ.Servers) {
	r := newRig(t, servers)
	due := time.Now().Truncate(time.Millisecond)
	o := orderclose.Order{ID: "late", Category: "virtual", CreatedAt: due.Add(-time.Minute), Due: due}
	m, err := wire.Record{Order: o, Release: due, Attempt: 3, Cause: "not_found"}.Encode() // its last attempt
	must.Do(t, err)
	partition := kafka.PartitionOf(m.Key, r.cfg.Partitions) // where its history looks for it
	r.append(r.cfg.Topics.Close, partition, m, wire.Message{Key: []byte("broken"), Value: []byte("{")})
	event := wire.Message{Topic: deadletters.OutboxOfEvents, Key: []byte("late"), Value: []byte("{}")}
	r.append(r.cfg.Topics.DeadLetter, 0, wire.DeadLetter(event, "outbox", "refused", "too large"))
	r.start("relay", "closer")
	var list deadletters.List
	states := func(want map[string]deadletters.OrderState) {
		t.Helper()
		r.eventually(func() error {
			list = deadletters.List{}
			r.decode(r.must("dlq", "ls", "-o", "json"), &list)
			got := map[string]deadletters.OrderState{}
			for _, l := range list.Letters {
				got[l.Cause] = l.Order
			}
			if !maps.Equal(got, want) {
				return fmt.Errorf("dead letters %+v, want %v", list.Letters, want)
			}
			return nil
		})
	}
	states(map[string]deadletters.OrderState{"not_found": "", "bad_version": "", "refused": ""})
	letter := list.Letters[slices.IndexFunc(list.Letters, func(l deadletters.Letter) bool { return l.Cause == "not_found" })]
	expect.That(t, letter.Stage == "closer" && letter.Source.Topic == r.cfg.Topics.Close && letter.Detail != "", "%+v does not say why and where", letter)

	must.Do(t, r.shop.Orders.CreateOrder(t.Context(), o, []shopdb.Item{{SKU: scenario.SKU(0), Quantity: 2}}))
	states(map[string]deadletters.OrderState{"not_found": deadletters.OrderOpen, "bad_version": "", "refused": ""})
	expect.Equal(t, list.Open.Total(), 3, "open dead letters")
	var plan ops.ReplayPlan
	r.decode(r.must("replay", "--dead-letters", "--from", "10m", "-o", "json"), &plan)
	expect.Equal(t, plan.Records, 3, "dead letters of the window")
	for range 2 { // the second closes nothing
		out, _ := r.cli("replay", "--dead-letters", "--from", "10m", "--yes", "-o", "json")
		var result ops.ReplayResult
		r.decode(out, &result)
		expect.That(t, result.Sent == 1 && result.Refused == 2, "%+v", result)
	}
	states(map[string]deadletters.OrderState{"not_found": deadletters.OrderEnded, "bad_version": "", "refused": ""})
	expect.Equal(t, list.Open.Text(), "1 bad_version, 1 refused", "open dead letters")

	r.eventually(func() error {
		told := r.tell("late")
		if !strings.Contains(told.Now.String(), "closed by pipeline") {
			return fmt.Errorf("it is %s", told.Now)
		}
		return nil
	})
	var what []string
	for _, e := range r.tell("late").Timeline {
		what = append(what, e.What.String())
	}
	all := strings.Join(what, "\n")
	for _, want := range []string{"after 3 failed attempts (not_found)", "given up by closer: not_found", "handed to the closer again; lane replay",
		"closed by pipeline", "2 of"} {
		expect.That(t, strings.Contains(all, want), "the timeline does not contain %q:\n%s", want, all)
	}
	r.stockIsRight()
}

// tell returns the history of an order.
func (r *rig) tell(id string) (told ops.History) {
	r.t.Helper()
	r.decode(r.must("order", id, "-o", "json"), &told)
	return told
}

func TestReal_DoctorAndTheQueriesOfTheRunbook(t *testing.T) {
	eachDatabase(t, doctorAndTheQueriesOfTheRunbook)
}

func doctorAndTheQueriesOfTheRunbook(t *testing.T, servers environ.Servers) {
	r := newRig(t, servers)
	r.start("relay", "closer", "compensator")
	r.play(9, 60, time.Second)
	r.settle()
	r.eventually(func() error { // a busy broker takes half a second for a probe, as if its clock differed
		if out, code := r.cli("doctor"); code != 0 {
			return fmt.Errorf("it exits with %d:\n%s", code, out)
		}
		return nil
	})
	r.must("audit", "--from", "1d")
	r.stockIsRight()
	must.Get(r.store.DB().ExecContext(t.Context(), "UPDATE stock SET reserved = reserved + 1 WHERE sku_id = ?", scenario.SKU(0)))(t)
	expect.Same(t, r.wrongStock(), []string{scenario.SKU(0)}, "SKUs whose reserved quantity is wrong")
	ordersByDueMinute(t, r)
	dueTimesMove(t, r)
}

// wrongStock returns the SKUs that the query of the runbook finds.
func (r *rig) wrongStock() []string {
	r.t.Helper()
	section, _ := runbook.At("is-everything-well")
	return r.texts("SELECT sku_id FROM (" + strings.Join(section.Commands("Meaning", "sql"), " ") + ") AS wrong ORDER BY sku_id")
}

// stockIsRight checks that the query of the runbook finds nothing.
func (r *rig) stockIsRight() {
	r.t.Helper()
	wrong := r.wrongStock()
	expect.That(r.t, len(wrong) <= 0, "more or less is reserved than orders hold of the SKUs %q", wrong)
}

// ordersByDueMinute runs the query of the runbook beside orders that are due within two hours.
func ordersByDueMinute(t *testing.T, r *rig) {
	due := time.Now().UTC().Add(2 * time.Hour).Truncate(time.Hour)
	for id, after := range map[string]time.Duration{"first": 0, "second": 59 * time.Second, "third": time.Minute} {
		o := orderclose.Order{ID: id, Category: "virtual", CreatedAt: time.Now(), Due: due.Add(after)}
		must.Do(t, r.shop.Orders.CreateOrder(t.Context(), o, []shopdb.Item{{SKU: scenario.SKU(0), Quantity: 1}}))
	}
	section, _ := runbook.At("the-window-is-full")
	const layout = "2006-01-02 15:04"
	query := strings.NewReplacer("2026-11-20 13:00", due.Format(layout), "2026-11-20 14:00", due.Add(time.Hour).Format(layout)).
		Replace(strings.Join(section.Commands("Meaning", "sql"), " "))
	rows := must.Get(r.store.DB().QueryContext(t.Context(), query))(t)
	defer rows.Close()
	var got [][3]int
	for rows.Next() {
		var row [3]int
		must.Do(t, rows.Scan(&row[0], &row[1], &row[2]))
		got = append(got, row)
	}
	must.Do(t, rows.Err())
	next := due.Add(time.Minute)
	expect.Same(t, got, [][3]int{{due.Hour(), due.Minute(), 2}, {next.Hour(), next.Minute(), 1}}, "open orders by due minute")
}

// dueTimesMove makes the delay of orders 20 seconds longer by the statement of the runbook, as it stands there but for its values.
func dueTimesMove(t *testing.T, r *rig) {
	const orders, layout = 1200, "2006-01-02 15:04:05"
	created := time.Now().Add(24 * time.Hour).UTC().Truncate(time.Second)
	due := created.Add(time.Hour)
	for id, category := range map[string]string{"many": "virtual", "others": "physical"} {
		r.insert(id, category, orders, func(i int) time.Time { return due.Add(time.Duration(i) * time.Millisecond) }, func(int) string { return scenario.SKU(0) })
	}
	section, _ := runbook.At("the-delay-of-a-category-was-wrong")
	language, delay := "sql", [2]string{"30 MINUTE", "3620 SECOND"}
	if r.store.Dialect() == store.Postgres {
		language, delay = "postgres", [2]string{"30 minutes", "3620 seconds"}
	}
	text := strings.Join(section.Commands("Act", language), " ")
	for _, value := range [][2]string{{"2026-11-20 13:00:00", created.Format(layout)}, {"2026-11-20 13:40:00", created.Add(10 * time.Second).Format(layout)},
		{"2026-11-20 13:45:00", due.Add(10 * time.Second).Format(layout)}, delay} {
		expect.That(t, strings.Contains(text, value[0]), "the runbook's statement has no %s", value[0])
		text = strings.ReplaceAll(text, value[0], value[1])
	}
	conn := must.Get(r.store.DB().Conn(t.Context()))(t)
	defer conn.Close()
	moved, batches := int64(0), 0
	for n := int64(1); n > 0; batches++ {
		for statement := range strings.SplitSeq(strings.TrimSuffix(text, ";"), ";") {
			n, _ = must.Get(conn.ExecContext(t.Context(), statement))(t).RowsAffected()
		}
		moved += n
	}
	expect.That(t, moved == orders && batches == 4, "%d orders were moved in %d batches", moved, batches)
	later := due.Add(20 * time.Second)
	expect.Equal(t, r.count("SELECT COUNT(*) FROM orders WHERE category = 'virtual' AND expire_at BETWEEN ? AND ?", later, later.Add(2*time.Second)), orders,
		"orders that are due 20 s later")
}
