package ops

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/compensator"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/deadletters"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/kafka/reads"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/topics"
	"github.com/orderclose/orderclose/internal/wire"
)

var made = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func after(d time.Duration) time.Time { return made.Add(d) }

func TestHistories_TwoSearchAtOnceAndOthersWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, p := NewHistories(), Pipeline{Config: config.Default()}
		for range historiesAtOnce + 1 {
			h, err := all.Of(t.Context(), p, "a")
			must.That(t, err == nil && h.ID == "a", "%+v, %v", h, err)
		}
		for range historiesAtOnce {
			all <- struct{}{}
		}
		expect.Is(t, expect.Err(all.Of(t.Context(), p, "a")), ErrBusy, "a search beside %d others", historiesAtOnce)
		time.AfterFunc(historyWait/2, func() { <-all })
		expect.NoError(t, expect.Err(all.Of(t.Context(), p, "a")))
	})
}

func TestNew_SortsTheTimeline(t *testing.T) {
	db := &store.OrderHistory{
		At: after(time.Hour),
		Order: &store.OrderRow{ID: "a", Category: "virtual", Status: store.Closed, State: "closed", CreatedAt: made, Due: after(5 * time.Minute),
			ClosedAt: after(7 * time.Minute)},
		Receipt: &store.ReceiptRow{Path: orderclose.PathPipeline, ClosedAt: after(7 * time.Minute), Attempts: 1, LatenessMS: 120_000},
		Ledger:  []store.LedgerRow{{SKU: "ink", Kind: "close", Quantity: 3, At: after(7 * time.Minute)}},
		PendingEvents: []store.PendingRow{{ID: 9, At: after(7 * time.Minute)},
			{ID: 8, At: after(7 * time.Minute), Type: "order.paid", Webhook: true},
			{ID: 7, At: after(7 * time.Minute), Type: "order.closed", Webhook: true, Attempts: 3, Error: "it answered 500"}},
		LatePayments: []store.LatePayment{
			{ID: 3, PaymentID: "pi_1", Amount: 1250, Currency: "EUR", Source: store.SourceCallback, FoundAt: after(9 * time.Minute), ResolvedAt: after(10 * time.Minute),
				Resolution: store.Refunded, ResolvedBy: "li"},
			{ID: 4, Source: store.SourceRecheck, FoundAt: after(11 * time.Minute)},
		},
	}
	letter := &deadletters.Letter{Cause: "failed", Detail: "no stock row", Stage: "closer",
		Source: deadletters.Source{Topic: "order-close", Partition: 3, Offset: 7}}
	topics := []HistoryTopic{
		{Topic: "delay_5m", Kind: KindBucket, Group: "g",
			Records: []Record{{Partition: 3, Offset: 17, Appended: after(20 * time.Millisecond), Leaves: after(5 * time.Minute)}}},
		{Topic: "order-close", Kind: KindClose, Group: "g", Records: []Record{
			{Partition: 3, Offset: 7, Appended: after(5 * time.Minute)},
			{Partition: 3, Offset: 9, Appended: after(7 * time.Minute), Attempt: 1, Cause: "failed", NotDue: 2},
			{Partition: 3, Offset: 11, Appended: after(8 * time.Minute), Lane: "replay", Waits: true}}},
		{Topic: "dead", Kind: KindDeadLetters, Records: []Record{
			{Offset: 4, Appended: after(5*time.Minute + time.Second), Dead: letter},
		}},
		{Topic: "events", Kind: KindEvents, Records: []Record{{Partition: 3, Offset: 2, Appended: after(7*time.Minute + time.Second), Event: "order.closed/a"}}},
	}
	s := NewHistory("a", after(time.Hour), db, topics, nil, Closing{})
	var got []string
	for _, e := range s.Timeline {
		got = append(got, e.At.Format("04:05.000 ")+e.Where+": "+e.What.String())
	}
	want := []string{
		"00:00.000 database: created, to be closed at 2026-11-20T12:05:00.000Z if it is not paid; category virtual",
		"00:00.020 delay_5m/3/17: put into a bucket; to leave at 2026-11-20T12:05:00.000Z",
		"05:00.000 database: due",
		"05:00.000 order-close/3/7: handed to the closer",
		"05:01.000 dead/0/4: given up by closer: failed: no stock row; from order-close/3/7",
		"07:00.000 order-close/3/9: handed to the closer; after 1 failed attempts (failed); came 2 times before it was due",
		"07:00.000 database: closed by pipeline, 2m after it was due; after 1 failed attempts",
		"07:00.000 database: stock: quantity 3 of SKU ink came back (close)",
		"07:00.000 database: event 9 written, and still in the outbox",
		"07:00.000 database: event order.paid waits until the receiver of the webhook accepts it",
		"07:00.000 database: event order.closed waits until the receiver of the webhook accepts it; sent 3 times; it was not accepted, because it answered 500",
		"07:01.000 events/3/2: event order.closed/a published",
		"08:00.000 order-close/3/11: handed to the closer again; lane replay; not committed yet",
		"09:00.000 database: late payment 3 found by callback: pi_1 1250 EUR",
		"10:00.000 database: late payment 3 refunded by li",
		"11:00.000 database: late payment 4 found by recheck: -",
	}
	diff := cmp.Diff(want, got)
	expect.That(t, diff == "" && s.Now.String() == "closed by pipeline, 2m after it was due" && s.Known(), "%q (-want +got):\n%s", s.Now, diff)
}

// The event of a close is neither in the outbox nor in the part of the topic that was read.
func TestNew_SaysThatTheEventHasLeft(t *testing.T) {
	db := &store.OrderHistory{Receipt: &store.ReceiptRow{Path: orderclose.PathSweep, ClosedAt: made}}
	published := []HistoryTopic{{Kind: KindEvents, Records: []Record{{Appended: made, Event: "order.closed/a"}}}}
	for left, topics := range map[bool][]HistoryTopic{true: nil, false: published} {
		s := NewHistory("a", made, db, topics, nil, Closing{})
		expect.Equal(t, strings.HasSuffix(s.Timeline[0].What.String(), "its event has left the outbox"), left, "the event has left")
	}
}

func TestNew_SaysWhereTheOrderIs(t *testing.T) {
	order := func(st store.Status, due time.Duration) *store.OrderHistory {
		return &store.OrderHistory{At: made, Order: &store.OrderRow{ID: "a", Status: st, State: "paid", CreatedAt: made.Add(-time.Hour), Due: after(due)}}
	}
	never := order(store.Unpaid, 0)
	never.Order.Due = orderclose.NeverDue
	bucket := func(skipped int64, records ...Record) HistoryTopic {
		return HistoryTopic{Topic: "delay_5m", Kind: KindBucket, Group: "g", Records: records, Skipped: skipped}
	}
	waiting := Record{Partition: 3, Offset: 17, Waits: true, Leaves: after(time.Minute)}
	gone := Record{Partition: 3, Offset: 17, Leaves: made}
	pending := Record{Partition: 3, Offset: 17, Waits: true, Leaves: after(time.Minute), PendingSince: after(-30 * time.Second)}
	mapped := order(-1, -time.Minute)
	mapped.Order.State, mapped.Order.Meaning = "101", "unpaid"
	paid := order(-1, -time.Minute)
	paid.Order.State, paid.Order.Meaning = "201", "paid"
	letter := Record{Offset: 4, Dead: &deadletters.Letter{}}
	dead := func(records ...Record) HistoryTopic {
		return HistoryTopic{Topic: "dead", Kind: KindDeadLetters, Records: records}
	}
	failures := map[string]*compensator.Failure{"fails": {Error: "locked: a row"}, "fails, mapped": {Error: "locked: a row"},
		"paused": {Cause: "paused", Error: "all orders until noon: INC-1"}}
	for what, c := range map[string]struct {
		db     *store.OrderHistory
		topics []HistoryTopic
		known  bool
		want   string
	}{
		"nobody": {&store.OrderHistory{}, []HistoryTopic{bucket(0)}, false, "found neither in the database nor in Kafka"},
		"elsewhere": {&store.OrderHistory{}, []HistoryTopic{bucket(0, waiting)}, true,
			"the service or the Store of the program that closes the orders knows its status; its record waits in delay_5m/3 at 17"},
		"not in the database": {&store.OrderHistory{}, []HistoryTopic{bucket(0, waiting)}, true,
			"the database has no such order; its record waits in delay_5m/3 at 17"},
		"paid": {order(store.Paid, 0), []HistoryTopic{bucket(0, waiting)}, true, "paid"},
		"waits": {order(store.Unpaid, time.Minute), []HistoryTopic{bucket(0, gone, waiting)}, true,
			"due in 1m; its record waits in delay_5m/3 at 17 and leaves at 2026-11-20T12:01:00"},
		"never due":        {never, []HistoryTopic{bucket(0)}, true, "unpaid, and never closed: its due time means never; no record of it waits"},
		"without a record": {order(store.Unpaid, time.Minute), []HistoryTopic{bucket(0)}, true, "due in 1m; no record of it waits"},
		"overdue": {order(store.Unpaid, -time.Minute), []HistoryTopic{bucket(0, gone)}, true,
			"overdue by 1m; no record of it waits; a compensator closes it"},
		"fails": {order(store.Unpaid, -time.Minute), []HistoryTopic{bucket(0, gone)}, true,
			"no record of it waits; it cannot be closed: locked: a row: orderclose runbook an-order-cannot-be-closed"},
		"paused": {order(store.Unpaid, -time.Minute), []HistoryTopic{bucket(0, gone)}, true,
			"waits; closing is paused: all orders until noon: INC-1: orderclose runbook closing-is-paused"},
		"fails, mapped": {mapped, []HistoryTopic{bucket(0, gone)}, true,
			"it cannot be closed: locked: a row: orderclose runbook an-order-cannot-be-closed"},
		"acknowledged": {order(store.Unpaid, -time.Minute), []HistoryTopic{bucket(0, gone),
			{Topic: "order-close", Kind: KindClose, Group: "g", Records: []Record{{Offset: 7}, {Partition: 3, Offset: 9}}}}, true,
			"no record of it waits; a member of the closers' group has acknowledged the one in order-close/3 at 9; it has not closed the order, or in another " +
				"database: orderclose runbook orders-are-overdue-in-the-database; a compensator closes it"},
		"acknowledged, paid": {order(store.Paid, -time.Minute), []HistoryTopic{{Topic: "order-close", Kind: KindClose, Group: "g", Records: []Record{{Offset: 7}}}},
			true, "paid"},
		"dead":         {order(store.Unpaid, -time.Minute), []HistoryTopic{bucket(0, gone), dead(letter)}, true, "dlq show 0/4"},
		"budget spent": {order(store.Unpaid, time.Minute), []HistoryTopic{bucket(77, gone)}, true, "77 offsets were skipped, search more"},
		"pays, and pending": {order(store.Unpaid, -time.Minute), []HistoryTopic{bucket(0, pending)}, true,
			"leaves at 2026-11-20T12:01:00.000Z; it waits for the payment provider, which has no answer (unknown) since 2026-11-20T11:59:30.000Z: ask it, such as " +
				"with orderclose-payments --ask a; a compensator asks again, and closes nothing without an answer: orderclose runbook "},
		"pending at a service": {order(store.Unpaid, -time.Minute), []HistoryTopic{bucket(0, pending)}, true, "it waits for the payment provider"},
		"pending, and mapped": {mapped, []HistoryTopic{bucket(0, pending)}, true,
			"unpaid, and overdue by 1m; its record waits in delay_5m/3 at 17 and leaves at 2026-11-20T12:01:00.000Z; it waits for the payment provider"},
		"mapped, and overdue": {mapped, []HistoryTopic{bucket(0, gone)}, true, "a compensator closes it, unless orders.where"},
		"mapped, and paid":    {paid, []HistoryTopic{bucket(0, gone)}, true, "201 (paid)"},
		"pays, and overdue": {order(store.Unpaid, -time.Minute), []HistoryTopic{bucket(0, gone)}, true,
			"no record of it waits; a compensator asks the payment provider, and closes it unless"},
		"pays, no Kafka": {order(store.Unpaid, -time.Minute), nil, true, "was not searched for; a compensator asks the payment provider, and closes it unless"},
		"no Kafka":       {order(store.Unpaid, time.Minute), nil, true, "was not searched for"},
		"Kafka fails":    {order(store.Unpaid, time.Minute), []HistoryTopic{{Topic: "x", Group: "g", Problem: "away"}}, true, "was not searched for"},
		"no database":    {nil, []HistoryTopic{bucket(0, waiting)}, true, "its record waits in delay_5m/3"},
		"neither":        {nil, []HistoryTopic{bucket(0)}, false, "no record of it waits"},
	} {
		s := NewHistory("a", made, c.db, c.topics, failures[what], Closing{Pays: strings.HasPrefix(what, "pays"), Elsewhere: what == "elsewhere"})
		promises := strings.Contains(s.Now.String(), "in any case") && (strings.HasPrefix(what, "pays") || strings.HasPrefix(what, "pending"))
		if s.Known() != c.known || !strings.Contains(s.Now.String(), c.want) || promises {
			t.Errorf("%s: known %v, %q; want %v, %q", what, s.Known(), s.Now, c.known, c.want)
		}
	}
	if s := NewHistory("a", made, nil, []HistoryTopic{{Topic: "x", Problem: "away"}}, nil, Closing{}); len(s.NotRead) != 1 {
		t.Errorf("%+v", s)
	}
}

// A search reads all offsets if the limit allows that, or else from the creation of the order on, or where records wait.
func TestRecordSearch_ReadsAPart(t *testing.T) {
	log := newMemoryLog(1, 6000)
	for i := range 10_000 {
		log.put("delay_1h", after(time.Duration(i)*time.Second), wire.Message{Key: []byte("other")})
	}
	created := after(9000 * time.Second)
	for _, c := range []struct {
		group   string
		created time.Time
		limit   int64
		want    string
		skipped int64
		doubt   int64
	}{
		{"g", created, 10_000, "0-9999", 0, 0},
		{"g", created, 5000, "6000-9999", 660, 0},                             // an hour and a minute before the creation is 5340
		{"g", created, 2000, "6000-7999", 660 + 2000, 0},                      // where records wait
		{"", created, 2000, "5340-7339", 2660, 0},                             // no record waits in it
		{"g", after(9999 * time.Second), 2000, "6339-8338", 9999 - 8338, 339}, // created later than the first that waits
		{"g", time.Time{}, 2000, "8000-9999", 8000, 0},                        // the newest
		{"g", after(100_000 * time.Second), 2000, "", 0, 4000},                // a clock that is a day ahead
	} {
		x := recordSearch{log: log, topic: &HistoryTopic{Topic: "delay_1h", Kind: KindBucket, Group: c.group, Length: time.Hour}}
		var spans []reads.Span
		x.keep = func(r wire.RawRecord) {
			if n := len(spans); n > 0 && spans[n-1].End == r.Offset {
				spans[n-1].End++
			} else {
				spans = append(spans, reads.Span{First: r.Offset, End: r.Offset + 1})
			}
		}
		must.Do(t, x.find(t.Context(), SearchLimit{Records: c.limit, Since: c.created}))
		var got []string
		for _, s := range spans {
			got = append(got, fmt.Sprintf("%d-%d", s.First, s.End-1))
		}
		expect.That(t, strings.Join(got, " ") == c.want && x.skipped == c.skipped && x.doubtful == c.doubt,
			"limit %d: read %q, skipped %d, %d doubtful; want %+v", c.limit, got, x.skipped, x.doubtful, c)
	}
}

func TestWaits_DecodesTheCommit(t *testing.T) {
	acked, _ := wire.EncodeRuns(10, []wire.Run{{First: 12, End: 14}})
	p := recordSearch{commit: kafka.Commit{Offset: 10, Metadata: acked}, end: 20}
	for offset, want := range map[int64]bool{9: true, 10: false, 11: false, 12: true, 13: true, 14: false} {
		expect.That(t, p.waits(offset) != want, "%d: want %v", offset, want)
	}
	for commit, offset := range map[int64]int64{30: 5, -1: 0} {
		p := (recordSearch{commit: kafka.Commit{Offset: commit}, end: 20})
		expect.That(t, p.waits(offset), "a commit past the end, or a missing commit, counts as done")
	}
}

// badLog fails every request.
type badLog struct{ Log }

func (badLog) Partitions(context.Context, string) (int, error) { return 0, errors.New("away") }

func TestSearch_AnErrorIsAProblemOfItsTopic(t *testing.T) {
	topics := SearchTopics(t.Context(), badLog{}, []HistoryTopic{{Topic: "x"}, {Topic: "y"}}, "a", SearchLimit{Records: 10})
	expect.That(t, len(topics) == 2 && topics[1].Topic == "y" && topics[1].Problem == "away", "%+v", topics)
}

// A shop may write the column of closed_at for other reasons, such as each change of the row.
func TestTimeline_TheTimeOfAnOpenOrderIsNoClose(t *testing.T) {
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for meaning, want := range map[string]bool{"": true, "closed": true, "counts as closed": true, "unpaid": false, "paid": false, "counts as paid": false} {
		db := &store.OrderHistory{Order: &store.OrderRow{ID: "a", State: "101", Meaning: meaning, Due: at, ClosedAt: at}}
		said := false
		for _, e := range timeline(db, nil) {
			said = said || e.What.String() == "closed, without a receipt"
		}
		expect.Equal(t, said, want, "an order that is %q", meaning)
	}
}

func TestRecord_SaysSinceWhenThePaymentIsPending(t *testing.T) {
	m, err := wire.Record{Order: orderclose.Order{ID: "a", Due: made}, Release: after(time.Minute), Cause: "payment_pending",
		PendingSince: after(time.Second)}.Encode()
	must.Do(t, err)
	var r Record
	r.travels(&HistoryTopic{Kind: KindBucket, Length: time.Minute}, m)
	expect.That(t, r.PendingSince.Equal(after(time.Second)), "%+v", r)
}

// A shop's screens show the id 42 of a column with ZEROFILL as 0000000042.
func TestHistory_AnIntegerIDMayBeginWithZeros(t *testing.T) {
	broker := must.Get(kfake.NewCluster())(t)
	t.Cleanup(broker.Close)
	k := must.Get(kafka.New(kafka.Options{Brokers: broker.ListenAddrs()}))(t)
	t.Cleanup(k.Close)
	const file = "buckets: [10s]\npartitions: 2\n" +
		"orders: {table: t, id: {column: id, type: %s}, status: {column: s, from: 0, to: 1}, due: {column: d, type: unix_s}, items: none, stock: none}\n"
	integer := must.Get(config.Parse("t", fmt.Appendf(nil, file, "integer")))(t)
	text := must.Get(config.Parse("t", fmt.Appendf(nil, file, "text")))(t)
	_, _, err := k.Apply(t.Context(), topics.Specs(integer))
	must.That(t, err == nil, "%v", err)
	for _, id := range []string{"42", "007", "7"} {
		o := orderclose.Order{ID: id, CreatedAt: time.Now(), Due: time.Now().Add(time.Hour)}
		m := must.Get(wire.Record{Order: o, Release: o.Due}.Encode())(t)
		must.Get(k.Append(t.Context(), "delay_10s", kafka.PartitionOf(m.Key, 2), []wire.Message{m}))(t)
	}
	for _, c := range []struct {
		cfg      *config.Config
		id, want string
		known    bool
	}{
		{integer, "0000000042", "42", true}, {integer, "42", "42", true}, {integer, "0043", "43", false}, {integer, "00", "00", false},
		{integer, "007", "007", true}, // a producer that spells the id in another way than the database
		{text, "0000000042", "0000000042", false},
	} {
		if h := (Pipeline{Config: c.cfg, Kafka: k}).History(t.Context(), c.id, 100); h.ID != c.want || h.Known() != c.known {
			t.Errorf("%s, %s: order %s, known: %v; want %s, %v", c.cfg.Orders.ID.Type, c.id, h.ID, h.Known(), c.want, c.known)
		}
	}
}

// memoryLog has topics in memory. A fetch brings at most ten records.
type memoryLog struct {
	Log
	partitions int   // of each topic
	committed  int64 // in each partition, by each group; -1: nothing
	records    map[string]map[int][]wire.RawRecord
}

func newMemoryLog(partitions int, committed int64) *memoryLog {
	return &memoryLog{partitions: partitions, committed: committed, records: map[string]map[int][]wire.RawRecord{}}
}

func (l *memoryLog) put(topic string, appended time.Time, m wire.Message) {
	if l.records[topic] == nil {
		l.records[topic] = map[int][]wire.RawRecord{}
	}
	p := kafka.PartitionOf(m.Key, l.partitions)
	m.Offset, m.Appended = int64(len(l.records[topic][p])), appended
	l.records[topic][p] = append(l.records[topic][p], m.Raw())
}

func (l *memoryLog) Partitions(context.Context, string) (int, error) { return l.partitions, nil }

func (l *memoryLog) Commits(_ context.Context, _, _ string, n int) ([]kafka.Commit, error) {
	return slices.Repeat([]kafka.Commit{{Offset: l.committed}}, n), nil
}

func (l *memoryLog) Bounds(_ context.Context, topic string, p int) (first, end int64, err error) {
	return 0, int64(len(l.records[topic][p])), nil
}

func (l *memoryLog) OffsetAt(_ context.Context, topic string, p int, t time.Time) (int64, error) {
	i := slices.IndexFunc(l.records[topic][p], func(r wire.RawRecord) bool { return !r.AppendedAt().Before(t) })
	if i < 0 {
		i = len(l.records[topic][p])
	}
	return int64(i), nil
}

func (l *memoryLog) Offsets(ctx context.Context, queries []kafka.OffsetQuery) []kafka.OffsetAnswer {
	answers := make([]kafka.OffsetAnswer, len(queries))
	for i, q := range queries {
		for _, at := range q.At {
			offset := int64(0) // the start
			switch at {
			case kafka.LogStart:
			case kafka.LogEnd:
				_, offset, _ = l.Bounds(ctx, q.Topic, q.Partition)
			default:
				offset, _ = l.OffsetAt(ctx, q.Topic, q.Partition, time.UnixMilli(int64(at)))
			}
			answers[i].Offsets = append(answers[i].Offsets, offset)
		}
	}
	return answers
}

func (l *memoryLog) Read(_ context.Context, at wire.Position) (wire.Fetched, error) {
	records := l.records[at.Topic][at.Partition][at.Offset:]
	records = records[:min(len(records), 10)]
	return wire.Fetched{Records: records, Next: at.Offset + int64(len(records))}, nil
}

// TestSearchTopics_ACheckoutWhoseClockIsAhead hides no waiting record, even where the limit does not allow all of them to be read. If the limit
// is too small for that, the search reports skipped offsets.
func TestSearchTopics_ACheckoutWhoseClockIsAhead(t *testing.T) {
	put := func(log *memoryLog, id string, appended, release time.Time) {
		m := must.Get(wire.Record{Order: orderclose.Order{ID: id, CreatedAt: appended, Due: release}, Release: release}.Encode())(t)
		log.put("delay_5m", appended, m)
	}
	// overdue returns a delay topic with n overdue records in the order in which their orders were created.
	overdue := func(n int) *memoryLog {
		log := newMemoryLog(2, -1)
		for i := range n {
			put(log, fmt.Sprint("o", i), after(time.Duration(i)*time.Second), after(5*time.Minute+time.Duration(i)*time.Second))
		}
		return log
	}
	search := func(log Log, id string, created time.Time, limit int64) HistoryTopic {
		topics := []HistoryTopic{{Topic: "delay_5m", Kind: KindBucket, Group: "r", Length: 5 * time.Minute}}
		return SearchTopics(t.Context(), log, topics, id, SearchLimit{Records: limit, Since: created})[0]
	}
	for _, ahead := range []time.Duration{0, 2 * time.Minute, time.Hour} {
		log, appended := overdue(10_000), after(10_000*time.Second)
		put(log, "o", appended, appended.Add(ahead+5*time.Minute))
		for i := range 200 { // the record is not at the end of its partition
			put(log, fmt.Sprint("later", i), appended.Add(time.Duration(i)*time.Second), appended.Add(ahead+5*time.Minute))
		}
		for _, limit := range []int64{1_000_000, 5000, 50} {
			found := search(log, "o", appended.Add(ahead), limit)
			waits := len(found.Records) == 1 && found.Records[0].Waits
			expect.That(t, waits || limit == 50 && found.Skipped != 0, "ahead by %v, with a limit of %d: %+v", ahead, limit, found)
			expect.Equal(t, len(search(log, "other", appended.Add(ahead), limit).Records), 0, "records of another order")
		}
	}
	found := search(overdue(1000), "o7", after(24*time.Hour), 1000) // in the right zone, on the wrong day
	expect.That(t, len(found.Records) == 1, "a day ahead: %+v", found)
}
