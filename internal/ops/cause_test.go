package ops

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/compensator"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

// recordsLog holds topics of two partitions in memory.
type recordsLog struct {
	Log
	records map[string]map[int][]wire.RawRecord
	read    int              // how many records were read, repeats included
	commits map[string]int64 // of topics; 0: none
	err     error
}

func (l *recordsLog) put(topic, id string, appended, release time.Time) {
	m, err := wire.Record{Order: orderclose.Order{ID: id, CreatedAt: appended, Due: release}, Release: release}.Encode()
	if err != nil {
		panic(err)
	}
	if l.records[topic] == nil {
		l.records[topic] = map[int][]wire.RawRecord{}
	}
	p := kafka.PartitionOf([]byte(id), 2)
	m.Offset, m.Appended = int64(len(l.records[topic][p])), appended
	l.records[topic][p] = append(l.records[topic][p], m.Raw())
}

func (l *recordsLog) Partitions(ctx context.Context, _ string) (int, error) {
	return 2, errors.Join(l.err, ctx.Err())
}

func (l *recordsLog) Commits(_ context.Context, _, topic string, n int) ([]kafka.Commit, error) {
	commits := make([]kafka.Commit, n)
	for i := range commits {
		if commits[i].Offset = -1; l.commits[topic] > 0 {
			commits[i].Offset = l.commits[topic]
		}
	}
	return commits, nil
}

func (l *recordsLog) Bounds(_ context.Context, topic string, p int) (first, end int64, err error) {
	return 0, int64(len(l.records[topic][p])), nil
}

func (l *recordsLog) OffsetAt(_ context.Context, topic string, p int, t time.Time) (int64, error) {
	for i, r := range l.records[topic][p] {
		if !r.AppendedAt().Before(t) {
			return int64(i), nil
		}
	}
	return int64(len(l.records[topic][p])), nil
}

func (l *recordsLog) Read(ctx context.Context, at wire.Position) (wire.Fetched, error) {
	if ctx.Err() != nil {
		return wire.Fetched{}, ctx.Err()
	}
	records := l.records[at.Topic][at.Partition][at.Offset:]
	records = records[:min(len(records), 10)]
	l.read += len(records)
	return wire.Fetched{Records: records, Next: at.Offset + int64(len(records))}, nil
}

// outbox is a schedule outbox in memory.
type outbox []wire.OutboxRow

func (o outbox) PendingSchedules(_ context.Context, after int64, limit int) (rows []wire.OutboxRow, err error) {
	for _, r := range o {
		if r.ID > after && len(rows) < limit {
			rows = append(rows, r)
		}
	}
	return rows, nil
}

var historyTopics = []HistoryTopic{
	{Topic: "close", Kind: KindClose, Group: "c"}, {Topic: "dead", Kind: KindDeadLetters},
	{Topic: "delay_5m", Kind: KindBucket, Group: "r", Length: 5 * time.Minute},
}

// backlog returns a delay topic with n overdue records in the order in which their orders
// were created.
func backlog(n int) (*recordsLog, []orderclose.Order) {
	l := &recordsLog{records: map[string]map[int][]wire.RawRecord{}}
	var orders []orderclose.Order
	for i := range n {
		o := orderclose.Order{ID: fmt.Sprint("o", i), CreatedAt: now.Add(time.Duration(i) * time.Second), Due: now.Add(5*time.Minute + time.Duration(i)*time.Second)}
		l.put("delay_5m", o.ID, o.CreatedAt, o.Due)
		orders = append(orders, o)
	}
	return l, orders
}

func begin(t *testing.T, i Investigator) compensator.Investigation {
	t.Helper()
	if i.Topics == nil {
		i.Topics = func(context.Context) ([]HistoryTopic, error) { return historyTopics, nil }
	}
	i.Logger = slog.New(slog.DiscardHandler)
	i.Clock = func(context.Context) (time.Time, error) { return now.Add(24 * time.Hour), nil }
	inv := must.Get(i.Begin(t.Context()))(t)
	return inv
}

func countCauses(misses []compensator.Miss) map[compensator.Cause]int {
	n := map[compensator.Cause]int{}
	for _, m := range misses {
		n[m.Cause]++
	}
	return n
}

// TestExplain_ReadsEachPartitionOnce holds for all pages of a sweep, from the oldest
// orders or from the newest.
func TestExplain_ReadsEachPartitionOnce(t *testing.T) {
	for _, backwards := range []bool{false, true} {
		log, orders := backlog(1000)
		inv := begin(t, Investigator{Log: log, MaxRecords: 1000, MaxTime: time.Minute})
		for page := range 10 {
			if backwards {
				page = 9 - page
			}
			n := countCauses(inv.Explain(t.Context(), orders[page*100:][:100]))
			must.That(t, n[compensator.RelayBehind] == 100, "page %d: %v", page, n)
		}
		if log.read > 1100 { // where two reads meet, a fetch returns some records again
			t.Errorf("%d records were read, of 1000 that there are; backwards %v", log.read, backwards)
		}
	}
}

func TestExplain_KeepsToTheLimitOfRecords(t *testing.T) {
	log, orders := backlog(1000)
	inv := begin(t, Investigator{Log: log, MaxRecords: 300, MaxTime: time.Minute})
	n := countCauses(inv.Explain(t.Context(), orders))
	if n[compensator.RelayBehind] < 280 || n[compensator.RelayBehind] > 300 || n[compensator.Absent] != 0 || n[compensator.RelayBehind]+n[compensator.Unknown] != 1000 {
		t.Errorf("%v of a budget of 300", n)
	}
	if log.read > 320 { // a fetch returns some records beyond the limit
		t.Errorf("%d records were read", log.read)
	}
}

func TestExplain_AFailureIsReportedAsUnknownWithItsReason(t *testing.T) {
	orders := []orderclose.Order{{ID: "a"}, {ID: "b"}}
	for what, c := range map[string]struct {
		o    Investigator
		want string
	}{
		"no Kafka":    {Investigator{MaxTime: time.Minute}, "no Kafka"},
		"Kafka fails": {Investigator{Log: &recordsLog{err: errors.New("away")}, MaxRecords: 10, MaxTime: time.Minute}, "close: away"},
		"no time":     {Investigator{Log: &recordsLog{}, MaxRecords: 10}, "time limit was reached"},
		"the topics": {Investigator{Log: &recordsLog{}, MaxRecords: 10, MaxTime: time.Minute, Topics: func(context.Context) ([]HistoryTopic, error) {
			return historyTopics, errors.New("nobody tells")
		}}, "nobody tells"},
		"the outbox": {Investigator{Log: &recordsLog{}, MaxRecords: 10, MaxTime: time.Minute, Schedules: badOutbox{}}, "schedule outbox: no such table"},
	} {
		for _, m := range begin(t, c.o).Explain(t.Context(), orders) {
			expect.That(t, m.Cause == compensator.Unknown && strings.Contains(m.Where, c.want), "%s: %+v", what, m)
		}
	}
}

type badOutbox struct{}

func (badOutbox) PendingSchedules(context.Context, int64, int) ([]wire.OutboxRow, error) {
	return nil, errors.New("no such table")
}

func TestExplain_ReadsTheOutboxWhenTheSweepBegins(t *testing.T) {
	rows := make(outbox, 12_000)
	for i := range rows {
		rows[i] = wire.OutboxRow{ID: int64(i + 1), OrderID: fmt.Sprint("o", i)}
	}
	inv := begin(t, Investigator{MaxTime: time.Minute, Schedules: rows})
	misses := inv.Explain(t.Context(), []orderclose.Order{{ID: "o11999"}, {ID: "o0"}, {ID: "other"}})
	if misses[0].Where != "outbox_schedules row 12000" || misses[1].Cause != compensator.Unpublished || misses[2].Cause != compensator.Unknown {
		t.Errorf("%+v", misses)
	}
}

// TestExplain_WithoutTimeLeftReturnsWhatIsKnown holds for the pages after the time limit.
func TestExplain_WithoutTimeLeftReturnsWhatIsKnown(t *testing.T) {
	log, orders := backlog(200)
	inv := begin(t, Investigator{Log: log, MaxRecords: 1000, MaxTime: time.Minute})
	inv.Explain(t.Context(), orders[:100])
	inv.(*investigation).left = 0
	n := countCauses(inv.Explain(t.Context(), orders[100:]))
	expect.That(t, n[compensator.RelayBehind] == 100, "%v", n)
}

// TestExplain_ACheckoutWhoseClockIsAhead hides no waiting record, even where the limit does
// not allow all of them to be read.
func TestExplain_ACheckoutWhoseClockIsAhead(t *testing.T) {
	for _, ahead := range []time.Duration{0, 2 * time.Minute, time.Hour} {
		for _, budget := range []int64{1_000_000, 5000} {
			log, _ := backlog(10_000)
			appended := now.Add(10_000 * time.Second)
			o := orderclose.Order{ID: "o", CreatedAt: appended.Add(ahead), Due: appended.Add(ahead + 5*time.Minute)}
			log.put("delay_5m", o.ID, appended, o.Due)
			for i := range 200 { // the record is not at the end of its partition
				log.put("delay_5m", fmt.Sprint("later", i), appended.Add(time.Duration(i)*time.Second), o.Due)
			}
			orders := []orderclose.Order{o, {ID: "other", CreatedAt: o.CreatedAt, Due: o.Due}}
			misses := begin(t, Investigator{Log: log, MaxRecords: budget, MaxTime: time.Minute}).Explain(t.Context(), orders)
			if misses[0].Cause != compensator.RelayBehind || misses[1].Cause == compensator.RelayBehind {
				t.Errorf("ahead by %v, of a budget of %d: %+v", ahead, budget, misses)
			}
		}
	}
	log, _ := backlog(1000)
	o := orderclose.Order{ID: "o7", CreatedAt: now.Add(24 * time.Hour)} // in the right zone, on the wrong day
	m := begin(t, Investigator{Log: log, MaxRecords: 1000, MaxTime: time.Minute}).Explain(t.Context(), []orderclose.Order{o})
	expect.That(t, m[0].Cause == compensator.RelayBehind, "a day ahead: %+v", m)
}

// A record that was acknowledged before the order was due, such as that of a postponed order, says nothing.
func TestInvestigator_SaysWhatWasAcknowledgedWithoutAClose(t *testing.T) {
	l := &recordsLog{records: map[string]map[int][]wire.RawRecord{}, commits: map[string]int64{"close": 1}}
	due := now.Add(time.Hour)
	put := func(id string, appended time.Time) orderclose.Order {
		l.put("close", id, appended, due)
		return orderclose.Order{ID: id, CreatedAt: now, Due: due}
	}
	// One record in each of the two partitions is below the commit.
	acked, early := put("a", due), put("f", due.Add(-30*time.Minute))
	waits := put("c", due)
	must.That(t, kafka.PartitionOf([]byte("a"), 2) != kafka.PartitionOf([]byte("f"), 2), "choose other ids")
	for limit, want := range map[int64]map[string]compensator.Cause{
		1000: {"a": compensator.Acknowledged, "f": compensator.Absent, "c": compensator.CloserBehind, "d": compensator.Absent},
		1:    {"a": compensator.Absent, "f": compensator.Absent, "c": compensator.CloserBehind, "d": compensator.Absent},
	} {
		misses := begin(t, Investigator{Log: l, MaxRecords: limit, MaxTime: time.Minute}).Explain(t.Context(), []orderclose.Order{acked, early, waits, {ID: "d", CreatedAt: now, Due: due}})
		for _, m := range misses {
			expect.That(t, m.Cause == want[m.Order.ID], "limit %d: %s is %s (%s), want %s", limit, m.Order.ID, m.Cause, m.Where, want[m.Order.ID])
			if m.Cause == compensator.Acknowledged && (m.Where != fmt.Sprintf("close/%d@0", kafka.PartitionOf([]byte("a"), 2)) || m.Fix != "orderclose order a") {
				t.Errorf("%+v", m)
			}
		}
	}
}

var now = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func in(kind TopicKind, leaves time.Duration, again bool) match {
	return match{Topic: &HistoryTopic{Topic: string(kind), Kind: kind}, Partition: 3, Offset: 17, Leaves: now.Add(leaves).UnixMilli(), Again: again}
}

func TestDecide(t *testing.T) {
	overdue, later, retry := in(KindBucket, -time.Minute, false), in(KindBucket, time.Minute, false), in(KindBucket, time.Minute, true)
	unreadable := match{Topic: &HistoryTopic{Topic: "bucket", Kind: KindBucket}, Partition: 3, Offset: 17}
	dead, due, replayed := in(KindDeadLetters, 0, true), in(KindClose, 0, false), in(KindReplay, 0, false)
	for what, c := range map[string]struct {
		e     evidence
		want  compensator.Cause
		where string
	}{
		"nothing":                      {evidence{}, compensator.Absent, ""},
		"nothing, and not all seen":    {evidence{notRead: "spent"}, compensator.Unknown, "spent"},
		"a row":                        {evidence{row: 9}, compensator.Unpublished, "outbox_schedules row 9"},
		"a row, and its record":        {evidence{row: 9, matches: []match{due}}, compensator.Unpublished, "outbox_schedules row 9"},
		"overdue in a bucket":          {evidence{matches: []match{overdue}}, compensator.RelayBehind, "bucket/3@17"},
		"about to leave":               {evidence{matches: []match{in(KindBucket, -time.Second, false)}}, compensator.LaterRelease, "bucket/3@17"},
		"an overdue retry":             {evidence{matches: []match{in(KindBucket, -time.Minute, true)}}, compensator.RelayBehind, "bucket/3@17"},
		"unreadable":                   {evidence{matches: []match{unreadable}}, compensator.RelayBehind, "bucket/3@17"},
		"later":                        {evidence{matches: []match{later}}, compensator.LaterRelease, "bucket/3@17"},
		"a retry":                      {evidence{matches: []match{retry}}, compensator.Retrying, "bucket/3@17"},
		"in the close topic":           {evidence{matches: []match{due}}, compensator.CloserBehind, "close/3@17"},
		"in the replay topic":          {evidence{matches: []match{replayed}}, compensator.CloserBehind, "replay/3@17"},
		"dead":                         {evidence{matches: []match{dead}}, compensator.DeadLettered, "dead_letter/3@17"},
		"dead, and a record for later": {evidence{matches: []match{later, dead}}, compensator.DeadLettered, "dead_letter/3@17"},
		"dead, and tried again":        {evidence{matches: []match{dead, retry}}, compensator.Retrying, "bucket/3@17"},
		"found, and not all seen":      {evidence{matches: []match{overdue}, notRead: "spent"}, compensator.RelayBehind, "bucket/3@17"},
	} {
		if why, where := decide(c.e, now); why != c.want || where != c.where {
			t.Errorf("%s: %s, %q; want %s, %q", what, why, where, c.want, c.where)
		}
	}
}

// TestDecide_HoldsForAnyEvidence: the order of the records does not matter, one more record
// never makes an order absent, and unknown means that nothing was found.
func TestDecide_HoldsForAnyEvidence(t *testing.T) {
	matches := rapid.Custom(func(t *rapid.T) match {
		kind := rapid.SampledFrom([]TopicKind{KindBucket, KindClose, KindReplay, KindDeadLetters}).Draw(t, "kind")
		return in(kind, time.Duration(rapid.Int64Range(-int64(time.Hour), int64(time.Hour)).Draw(t, "leaves")), rapid.Bool().Draw(t, "again"))
	})
	rapid.Check(t, func(t *rapid.T) {
		e := evidence{
			row: rapid.Int64Range(0, 2).Draw(t, "row"), matches: rapid.SliceOfN(matches, 0, 6).Draw(t, "matches"),
			notRead: rapid.SampledFrom([]string{"", "spent"}).Draw(t, "unseen"),
		}
		why, _ := decide(e, now)
		must.That(t, slices.Contains(compensator.Causes(), why), "%q is no cause", why)
		found := e.row > 0 || len(e.matches) > 0
		must.That(t, found != (why == compensator.Absent || why == compensator.Unknown), "%+v: %s", e, why)
		other := e
		other.matches = slices.Clone(e.matches)
		slices.Reverse(other.matches)
		again, _ := decide(other, now)
		must.That(t, again == why, "%+v: %s, and in another order %s", e, why, again)
		fix := fixOne(compensator.Miss{Cause: why})
		must.That(t, fix != "" && FixCommand(why) != "", "nothing fixes %s", why)
	})
}

func TestFixOne_CanBePastedIntoAShell(t *testing.T) {
	for id, want := range map[string]string{
		"order-17": "orderclose order order-17", "a b": "orderclose order 'a b'",
		"it's; rm": `orderclose order 'it'\''s; rm'`, "-x": "orderclose order '-x'",
	} {
		expect.Equal(t, fixOne(compensator.Miss{Order: orderclose.Order{ID: id}, Cause: compensator.Retrying}), want, "%q", id)
	}
}
