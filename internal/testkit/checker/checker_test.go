package checker

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose/internal/testkit/expect"
)

var epoch = time.UnixMilli(1_700_000_000_000)

// event returns the event of the close of an order that held two of a SKU.
func event(id string, due, closedAt time.Time, path string) string {
	return fmt.Sprintf(`{"specversion":"1.0","id":"e-%[1]s","source":"s","type":"order.closed","subject":"%[1]s","time":"%[3]s",
		"data":{"order_id":"%[1]s","due_at":"%[2]s","closed_at":"%[3]s","path":"%[4]s","release":[{"sku":"sku","quantity":2,"key":"k-%[1]s"}]}}`,
		id, due.UTC().Format(time.RFC3339Nano), closedAt.UTC().Format(time.RFC3339Nano), path)
}

// evidence returns a run without violations: one order closed by the pipeline, one closed by the sweep, one paid, one cancelled, one shipped.
func evidence() (*tables, *logs, Expect) {
	due := epoch.Add(time.Minute)
	db := &tables{
		orders: map[string]order{
			"piped":     {status: closed, due: due, closedAt: due},
			"swept":     {status: closed, due: due, closedAt: due.Add(time.Hour)},
			"paid":      {status: paid, due: due, paidAt: epoch, payment: "p"},
			"cancelled": {status: cancelled, due: due},
			"shipped":   {status: shipped, due: due, paidAt: epoch, payment: "p"},
		},
		items: map[string]map[string]int64{},
		receipts: map[string]receipt{
			"piped": {due: due, closedAt: due, path: "pipeline"},
			"swept": {due: due, closedAt: due.Add(time.Hour), path: "sweep", lateness: time.Hour},
		},
		ledger: map[string]map[entry]int64{
			"piped": {{"sku", "close"}: 2}, "swept": {{"sku", "close"}: 2}, "cancelled": {{"sku", "cancel"}: 2}, "shipped": {{"sku", "ship"}: 2},
		},
		stock: map[string]stock{"sku": {available: 96, reserved: 2}},
		// Of the two closes, one has a repeated event, and one has its event in the outbox.
		outbox: map[string][][]byte{"swept": {fmt.Appendf(nil, `{"due_at":%q,"closed_at":%q,"path":"sweep","release":{"sku":2}}`,
			due.UTC().Format(time.RFC3339Nano), due.Add(time.Hour).UTC().Format(time.RFC3339Nano))}},
	}
	for id := range db.orders {
		db.items[id] = map[string]int64{"sku": 2}
	}
	l := &logs{
		records: map[string][]record{
			"delay": {{offset: 0, key: "piped", appended: epoch, due: due, hasDue: true}, {offset: 1, key: "paid", appended: epoch, due: due, hasDue: true}},
			"events": {{key: "piped", value: []byte(event("piped", due, due, "pipeline")), mediaType: cloudEventType},
				{offset: 1, key: "piped", value: []byte(event("piped", due, due, "pipeline")), mediaType: cloudEventType}},
			"close": {{offset: 0, key: "piped", appended: due, brokerTime: true, due: due, hasDue: true},
				{offset: 1, key: "paid", appended: due, brokerTime: true, due: due, hasDue: true}},
		},
		arrived: map[string]bool{"piped": true, "paid": true},
		dead:    map[string]bool{},
		appends: map[string]int{"piped": 1, "paid": 1, "added": 1},
		newest:  map[string]time.Time{"piped": epoch, "paid": epoch},
		ends:    map[string]map[int32]int64{"delay": {0: 2}, "close": {0: 2}},
		commits: map[string]map[int32]Commit{"relay": {0: {Offset: 2}}, "closer": {0: {Offset: 2}}},
	}
	return db, l, Expect{
		Stock: map[string]int64{"sku": 100}, Paid: []string{"paid", "shipped"}, OpenAfter: epoch.Add(24 * time.Hour),
		Delays: map[string]string{"delay": "relay"}, CloseTopic: "close", DeadLetterTopic: "dead", CloserGroup: "closer", EventsTopic: "events",
		Added: []string{"added"}, RolledBack: []string{"undone"},
		Published: []string{"piped", "paid"}, Calm: true, Missed: 1, MaxAppends: 3, DeadLetters: []string{"not_found"},
	}
}

func TestEvaluate_AcceptsACorrectRun(t *testing.T) {
	v := evaluate(evidence())
	expect.That(t, v.OK() && v.StockOK && v.Early == 0 && v.Open == 0 && v.Closed() == 2 && v.Paid == 2 && v.Cancelled == 1, "%+v", v)
}

// A compensator may close a published order after a pause or a failure, even if nothing was killed.
func TestEvaluate_WithoutAMissTheCompensatorMayClosePublishedOrders(t *testing.T) {
	for missed, ok := range map[int64]bool{0: true, 1: false} {
		db, l, e := evidence()
		e.Published, e.Missed = append(e.Published, "swept"), missed
		v := evaluate(db, l, e)
		expect.That(t, v.OK() == ok, "%d missed: %v", missed, v.Violations)
	}
}

// TestEvaluate_AcceptsAHopWithEarlierAppendTime after a broker's clock was set back: the hop has an earlier append time than the record before it.
func TestEvaluate_AcceptsAHopWithEarlierAppendTime(t *testing.T) {
	db, l, e := evidence()
	delete(l.arrived, "paid")
	l.records["close"] = l.records["close"][:1]
	hop := l.records["delay"][1]
	hop.offset, hop.appended = 2, hop.appended.Add(-time.Minute)
	l.records["delay"] = append(l.records["delay"], hop)
	for name, c := range map[string]struct {
		apart     bool
		committed int64
		ok        bool
	}{"waits": {true, 2, true}, "done": {true, 3, false}, "clocks are right": {false, 2, false}} {
		e.ClockSkew, l.commits["relay"], l.ends["delay"] = c.apart, map[int32]Commit{0: {Offset: c.committed}}, map[int32]int64{0: 3}
		v := evaluate(db, l, e)
		expect.That(t, v.OK() == c.ok, "%s: %v", name, v.Violations)
	}
}

// TestEvaluate_EventsOfADeletedTopicMayBeMissing if their orders were closed before the topic was deleted, and only then.
func TestEvaluate_EventsOfADeletedTopicMayBeMissing(t *testing.T) {
	db, l, e := evidence()
	l.records["events"] = nil
	closedAt := db.receipts["piped"].closedAt
	for deleted, want := range map[time.Time]bool{closedAt: false, closedAt.Add(time.Millisecond): true} {
		e.EventsDeleted = deleted
		v := evaluate(db, l, e)
		expect.That(t, v.OK() == want, "closed at %v, the topic deleted at %v: %v", closedAt, deleted, v.Violations)
	}
}

// latePayment is the event of a payment of the order piped.
var latePayment = record{key: "piped", mediaType: cloudEventType,
	value: []byte(`{"specversion":"1.0","id":"order.paid_late/5:piped/p","source":"/","type":"order.paid_late","subject":"piped",` +
		`"data":{"order_id":"piped","payment_id":"p"}}`)}

// TestEvaluate_DetectsEachViolation breaks the promises one by one.
func TestEvaluate_DetectsEachViolation(t *testing.T) {
	for name, c := range map[string]struct {
		breakIt func(db *tables, l *logs)
		want    string
	}{
		"closed early": {func(db *tables, _ *logs) {
			o, r := db.orders["piped"], db.receipts["piped"]
			o.closedAt = o.due.Add(-time.Millisecond)
			r.closedAt, r.lateness = o.closedAt, -time.Millisecond
			db.orders["piped"], db.receipts["piped"] = o, r
		}, "closed before they were due"},
		"forwarded early": {func(_ *tables, l *logs) {
			l.records["close"][0].appended = l.records["close"][0].due.Add(-time.Millisecond)
		}, "in the close topic before they were due"},
		"overdue and open": {func(db *tables, _ *logs) { db.orders["open"] = order{status: unpaid, due: epoch} }, "overdue and open"},
		"paid and closed": {func(db *tables, _ *logs) {
			o := db.orders["piped"]
			o.paidAt = epoch
			db.orders["piped"] = o
		}, "was paid and is closed"},
		"a payment is lost":          {func(db *tables, _ *logs) { db.orders["paid"] = order{status: cancelled, due: epoch} }, "was paid and has status"},
		"no receipt":                 {func(db *tables, _ *logs) { delete(db.receipts, "piped") }, "receipt: false"},
		"a receipt for a paid order": {func(db *tables, _ *logs) { db.receipts["paid"] = db.receipts["piped"] }, "receipt: true"},
		"a receipt without order":    {func(db *tables, _ *logs) { db.receipts["ghost"] = receipt{} }, "receipt without order"},
		"a receipt with wrong lateness": {func(db *tables, _ *logs) {
			r := db.receipts["swept"]
			r.lateness = 0
			db.receipts["swept"] = r
		}, "does not agree"},
		"stock returned twice":        {func(db *tables, _ *logs) { db.stock["sku"] = stock{available: 100, reserved: 0} }, "has 0 reserved, and orders hold 2"},
		"stock disappeared":           {func(db *tables, _ *logs) { db.stock["sku"] = stock{available: 94, reserved: 2} }, "and began with 100"},
		"a SKU disappeared":           {func(db *tables, _ *logs) { delete(db.stock, "sku") }, "and began with 100"},
		"a release without ledger":    {func(db *tables, _ *logs) { delete(db.ledger["piped"], entry{"sku", "close"}) }, "gave back 0"},
		"shipped without ledger":      {func(db *tables, _ *logs) { delete(db.ledger, "shipped") }, "gave back 0"},
		"a ledger row too many":       {func(db *tables, _ *logs) { db.ledger["piped"][entry{"sku", "cancel"}] = 2 }, "gave back map"},
		"a paid order's stock back":   {func(db *tables, _ *logs) { db.ledger["paid"] = map[entry]int64{{"sku", "close"}: 2} }, "gave stock back"},
		"committed and not forwarded": {func(_ *tables, l *logs) { delete(l.arrived, "piped") }, "went nowhere"},
		"committed and not closed": {func(db *tables, _ *logs) {
			db.orders["piped"] = order{status: unpaid, due: epoch.Add(48 * time.Hour)}
		}, "committed and not settled"},
		"an unexpected dead letter": {func(_ *tables, l *logs) {
			l.records["dead"] = []record{{key: "piped", cause: "failed", headers: deadLetter("failed")}}
		}, `because of "failed"`},
		"a dead letter of an order that exists, as if it did not": {func(_ *tables, l *logs) {
			l.records["dead"] = []record{{key: "piped", cause: "not_found", headers: deadLetter("not_found")}}
		}, `because of "not_found"`},
		"published, in no topic and closed by the sweep": {func(db *tables, l *logs) {
			r := db.receipts["piped"]
			r.path = "sweep"
			db.receipts["piped"] = r
			delete(l.arrived, "piped")
			delete(l.appends, "piped")
		}, "the pipeline missed 1"},
		"running in circles":        {func(_ *tables, l *logs) { l.appends["piped"] = 4 }, "took 4 appends"},
		"stamps of the producer":    {func(_ *tables, l *logs) { l.records["close"][0].brokerTime = false }, "did not stamp"},
		"added and lost":            {func(_ *tables, l *logs) { delete(l.appends, "added") }, "neither there nor in any topic"},
		"rolled back and published": {func(_ *tables, l *logs) { l.appends["undone"] = 1 }, "rolled back and scheduled"},
		"rolled back and added":     {func(db *tables, _ *logs) { db.added = map[string]int{"undone": 1} }, "rolled back and scheduled"},
		"no event":                  {func(_ *tables, l *logs) { l.records["events"] = nil }, "1 closed orders have no event"},
		"an event with another id on repeat": {func(_ *tables, l *logs) {
			r := &l.records["events"][1]
			r.value = []byte(strings.Replace(string(r.value), "e-piped", "e-other", 1))
		}, "has the different ids"},
		"two orders, one id": {func(_ *tables, l *logs) {
			for i := range l.records["events"] {
				r := &l.records["events"][i]
				r.value = []byte(strings.Replace(string(r.value), "e-piped", "order.closed/swept", 1))
			}
		}, "have the same event id"},
		"an unreadable row of the outbox": {func(db *tables, _ *logs) { db.outbox["swept"][0] = []byte("{") }, "in the outbox cannot be read"},
		"a row of the outbox with a wrong quantity": {func(db *tables, _ *logs) {
			db.outbox["swept"][0] = bytes.Replace(db.outbox["swept"][0], []byte(`"sku":2`), []byte(`"sku":3`), 1)
		}, "does not agree with its order"},
		"an event of a paid order": {func(_ *tables, l *logs) {
			l.records["events"] = append(l.records["events"], record{key: "paid", value: []byte(event("paid", epoch, epoch, "pipeline")), mediaType: cloudEventType})
		}, "says that paid was closed"},
		"an event with a wrong quantity": {func(_ *tables, l *logs) {
			r := &l.records["events"][0]
			r.value = []byte(strings.Replace(string(r.value), `"quantity":2`, `"quantity":3`, 1))
		}, "does not agree with its order"},
		"a late payment without an event": {func(db *tables, _ *logs) {
			db.late = map[payment]bool{{"piped", "p"}: true}
		}, "1 late payments have no event, such as those of [piped]"},
		"an event of no late payment": {func(_ *tables, l *logs) {
			l.records["events"] = append(l.records["events"], latePayment)
		}, "says that the payment {piped p} is late"},
		"an event under another key":    {func(_ *tables, l *logs) { l.records["events"][0].key = "paid" }, "has the key paid"},
		"an unreadable event":           {func(_ *tables, l *logs) { l.records["events"][0].value = []byte("{") }, "cannot be read"},
		"an event without content type": {func(_ *tables, l *logs) { l.records["events"][0].mediaType = "" }, "content-type"},
		"an order marked as paid without an event": {func(db *tables, _ *logs) {
			db.orders["paid"] = order{status: paid, due: epoch, paidAt: epoch}
		}, "1 orders were marked as paid without a payment and without an event, such as [paid]"},
		"an event of an order that nobody paid": {func(_ *tables, l *logs) { markPaid(l, "cancelled", epoch) }, "says that order cancelled was marked as paid"},
		"an event of a payment at another time": {func(_ *tables, l *logs) {
			markPaid(l, "paid", epoch.Add(time.Second))
		}, "says that order paid was marked as paid"},
		"a reminder of a paid order":    {func(_ *tables, l *logs) { remind(l, "paid", time.Second, 2) }, "written after a payment"},
		"a reminder after the deadline": {func(_ *tables, l *logs) { remind(l, "paid", 31*time.Second, 1) }, "the deadline is"},
		"a reminder of nobody's order":  {func(_ *tables, l *logs) { remind(l, "unknown", time.Second, 1) }, "of order unknown"},
		"a reminder that was written twice": {func(_ *tables, l *logs) {
			remind(l, "paid", time.Second, 1)
			remind(l, "paid", 2*time.Second, 1)
		}, "written twice"},
		"committed past the end": {func(_ *tables, l *logs) { l.commits["relay"][0] = Commit{Offset: 3} }, "ends at 2"},
	} {
		db, l, e := evidence()
		c.breakIt(db, l)
		v := evaluate(db, l, e)
		all := strings.Join(v.Violations, "\n")
		expect.That(t, strings.Contains(all, c.want), "%s: want %q among\n%s", name, c.want, all)
	}
}

// markPaid adds the event of an order that was marked as paid.
func markPaid(l *logs, id string, at time.Time) {
	again := l.records["events"][0]
	again.key = id
	again.value = fmt.Appendf(nil,
		`{"specversion":"1.0","id":"order.paid/%s","source":"/","type":"order.paid","subject":%[1]q,"time":%[2]q,"data":{"order_id":%[1]q,`+
			`"paid_at":%[2]q,"version":2}}`,
		id, at.Format(time.RFC3339Nano))
	l.records["events"] = append(l.records["events"], again)
}

// remind adds a reminder to the events. The order is due in a minute from epoch, and the deadline is half a minute earlier.
func remind(l *logs, id string, at time.Duration, version int) {
	again := l.records["events"][0]
	again.key = id
	again.value = fmt.Appendf(nil,
		`{"specversion":"1.0","id":"order.reminder/%s","source":"/","type":"order.reminder","subject":%[1]q,"time":%[2]q,"data":{"order_id":%[1]q,"due_at":%[3]q,`+
			`"deadline_at":%[4]q,"version":%[5]d}}`,
		id, epoch.Add(at).Format(time.RFC3339), epoch.Add(time.Minute).Format(time.RFC3339), epoch.Add(30*time.Second).Format(time.RFC3339), version)
	l.records["events"] = append(l.records["events"], again)
}

func TestEvaluate_CountsDuplicatesButNotSecondPublications(t *testing.T) {
	db, l, e := evidence()
	e.Published = append(e.Published, "paid")
	for offset, key := range []string{"piped", "paid", "piped", "paid"} {
		again := l.records["close"][0]
		again.key, again.offset = key, int64(2+offset)
		l.records["close"] = append(l.records["close"], again)
	}
	v := evaluate(db, l, e)
	expect.That(t, v.Repeated == 3 && v.OK(), "%d repeated, want piped twice and paid once; %v", v.Repeated, v.Violations)
}

func TestEvaluate_RequiresAnEmptyOutboxAfterACalmEnd(t *testing.T) {
	db, l, e := evidence()
	v := evaluate(db, l, e)
	expect.That(t, v.Events == 1, "%d events, want 1: a copy does not count", v.Events)
	e.OutboxEmpty = true
	if v := evaluate(db, l, e); len(v.Violations) != 1 || !strings.Contains(v.Violations[0], "1 orders' events are still in the outbox") {
		t.Errorf("%v", v.Violations)
	}
}

// deadLetter returns the headers of a dead letter of the first record of the close topic.
func deadLetter(cause string) map[string]string {
	return map[string]string{"cause": cause, "detail": "why", "stage": "closer", "source-topic": "close", "source-partition": "0", "source-offset": "0"}
}

// observed is evidence with all commits, and with one clock.
func observed() (*tables, *logs, Expect) {
	db, l, e := evidence()
	e.OneClock, e.RelayedUntil = true, epoch.Add(time.Hour)
	for i := range l.records["delay"] {
		l.records["delay"][i].brokerTime = true
	}
	due := epoch.Add(time.Minute)
	e.Commits = []Commit{
		{At: epoch, Group: "relay", Topic: "delay"},
		{At: due, Group: "relay", Topic: "delay", Metadata: "r1:AQE"}, // the second record, while the first is in flight
		{At: due.Add(time.Second), Group: "relay", Topic: "delay", Offset: 2},
		{At: due.Add(time.Second), Group: "closer", Topic: "close", Offset: 2},
	}
	return db, l, e
}

func TestEvaluate_AcceptsCorrectCommits(t *testing.T) {
	db, l, e := observed()
	v := evaluate(db, l, e)
	expect.That(t, v.OK(), "%v", v.Violations)
	e.Stopped = true
	if v := evaluate(db, l, e); !v.OK() {
		t.Errorf("stopped: %v", v.Violations)
	}
	l.commits["relay"][0] = Commit{Metadata: "r1:AAI"}
	if v := evaluate(db, l, e); v.OK() {
		t.Error("a run that begins at the committed offset is accepted")
	}
}

func TestEvaluate_DetectsWrongCommits(t *testing.T) {
	due := epoch.Add(time.Minute)
	for name, c := range map[string]struct {
		breakIt func(db *tables, l *logs, e *Expect)
		want    string
	}{
		"committed before the ack": {func(_ *tables, _ *logs, e *Expect) { e.Commits[2].At = due.Add(-time.Millisecond) }, "piped at delay/0/0"},
		"done in the metadata of a commit, before the ack": {func(_ *tables, _ *logs, e *Expect) {
			e.Commits[1].At = due.Add(-time.Millisecond)
		}, "paid at delay/0/1"},
		"committed before the close": {func(db *tables, _ *logs, _ *Expect) {
			o, r := db.orders["piped"], db.receipts["piped"]
			o.closedAt, r.closedAt, r.lateness = due.Add(time.Minute), due.Add(time.Minute), time.Minute
			db.orders["piped"], db.receipts["piped"] = o, r
		}, "piped at close/0/0"},
		"still in its delay topic": {func(_ *tables, l *logs, _ *Expect) {
			l.records["close"] = l.records["close"][1:]
			l.commits["relay"][0] = Commit{Offset: 0}
		}, "should have left"},
		"acked and not committed": {func(_ *tables, l *logs, e *Expect) {
			e.Stopped = true
			l.commits["relay"][0] = Commit{Offset: 1}
		}, "after an orderly stop"},
		"closed and not committed": {func(_ *tables, l *logs, e *Expect) {
			e.Stopped = true
			l.commits["closer"][0] = Commit{Offset: 0}
		}, "after an orderly stop"},
		"a dead letter without a detail": {func(_ *tables, l *logs, _ *Expect) {
			h := deadLetter("not_found")
			delete(h, "detail")
			l.records["dead"] = []record{{key: "x", cause: "not_found", headers: h}}
		}, "has no detail"},
		"a dead letter with wrong coordinates": {func(_ *tables, l *logs, _ *Expect) {
			h := deadLetter("not_found")
			h["source-offset"] = "2"
			l.records["dead"] = []record{{key: "x", cause: "not_found", headers: h}}
		}, "where no record ever was"},
	} {
		db, l, e := observed()
		c.breakIt(db, l, &e)
		v := evaluate(db, l, e)
		all := strings.Join(v.Violations, "\n")
		expect.That(t, strings.Contains(all, c.want), "%s: want %q among\n%s", name, c.want, all)
	}
}

func TestState_DiffDescribesChanges(t *testing.T) {
	before := State{"order a": "x", "stock s": "1", "ledger a": "y"}
	after := State{"order a": "z", "stock s": "1", "receipt a": "r"}
	want := "[ledger a is gone order a was x and is z receipt a is new]"
	got := fmt.Sprint(before.Diff(after))
	expect.That(t, got == want, "got  %s\nwant %s", got, want)
}
