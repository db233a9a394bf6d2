package shadow

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/wire"
)

func TestCompare_SaysHowTheTwoSidesDiffer(t *testing.T) {
	const tolerance = time.Minute
	closed := func(after time.Duration) store.ClosedRow { return rowOf("o", due, due.Add(after)) }
	open := rowOf("o", due, time.Time{})
	verdict := func(v orderclose.Verdict, after time.Duration) decided { return decided{v, due.Add(after)} }
	soon := verdict(orderclose.Closed, time.Second)
	for what, c := range map[string]struct {
		row     store.ClosedRow
		state   store.AuditState
		verdict decided
		now     time.Duration // after the due time
		want    string        // class, path, and what
	}{
		"both at once": {closed(61 * time.Second), store.AuditClosed, soon, time.Hour,
			"same pipeline we would have closed it at 2026-11-20T12:00:01.000Z, 1m0s before they did"},
		"they are later": {closed(62 * time.Second), store.AuditClosed, soon, time.Hour,
			"earlier pipeline we would have closed it at 2026-11-20T12:00:01.000Z, 1m1s before they did"},
		"they are later, a moment ago": {closed(time.Hour), store.AuditClosed, soon, time.Hour,
			"earlier pipeline we would have closed it at 2026-11-20T12:00:01.000Z, 59m59s before they did"},
		"they were first": {closed(time.Second), store.AuditClosed, verdict(orderclose.AlreadyClosed, 2*time.Second), time.Hour,
			"same pipeline we would have closed it at 2026-11-20T12:00:02.000Z, 1s after they did"},
		"they closed it before it was due": {closed(-8 * time.Hour), store.AuditClosed, verdict(orderclose.AlreadyClosed, -time.Second), time.Hour,
			"later pipeline we would have closed it at 2026-11-20T12:00:00.000Z, 8h0m0s after they did; they closed it before it was due"},
		"we are far behind": {closed(time.Second), store.AuditClosed, verdict(orderclose.AlreadyClosed, time.Hour), 2 * time.Hour,
			"later pipeline we would have closed it at 2026-11-20T13:00:00.000Z, 59m59s after they did"},
		"memory had no room": {closed(time.Second), store.AuditClosed, verdict(orderclose.NotDue, -time.Hour), time.Hour,
			"same pipeline we would have closed it at 2026-11-20T12:00:00.000Z, 1s before they did"},
		"the time of the close is not known": {rowOf("o", due, time.Time{}), store.AuditClosed, soon, time.Hour, "same pipeline "},
		"they forgot it": {open, store.AuditOpen, soon, time.Hour,
			"only_we pipeline we would have closed it at 2026-11-20T12:00:01.000Z; it is open"},
		"it was paid after that": {open, store.AuditPaid, soon, time.Hour,
			"only_we pipeline we would have closed it at 2026-11-20T12:00:01.000Z; it is paid"},
		"it was cancelled after that": {open, store.AuditOther, soon, time.Hour,
			"only_we pipeline we would have closed it at 2026-11-20T12:00:01.000Z; it is other"},
		"it was never sent": {open, store.AuditOpen, decided{}, time.Hour,
			"only_we sweep only a sweep would have closed it: no record of it was read; it is open"},
		"it was not found": {open, store.AuditOpen, verdict(orderclose.NotFound, 0), time.Hour,
			"only_we sweep only a sweep would have closed it: the verdict on its record is not_found; it is open"},
		"they have a moment left":      {open, store.AuditOpen, soon, tolerance - 1, "recent pipeline "},
		"its record has a moment left": {closed(time.Second), store.AuditClosed, decided{}, tolerance - 1, "recent  "},
		"they closed a paid order": {closed(time.Hour), store.AuditClosed, verdict(orderclose.AlreadyPaid, time.Second), 2 * time.Hour,
			"only_they  they closed it at 2026-11-20T13:00:00.000Z; the verdict on its record is already_paid"},
		"they closed one that we exclude": {rowOf("o", due, time.Time{}), store.AuditClosed, verdict(orderclose.Excluded, 0), time.Hour,
			"only_they  they closed it; the verdict on its record is excluded"},
		"they closed one that was not sent": {closed(time.Second), store.AuditClosed, decided{}, time.Hour,
			"only_they  they closed it at 2026-11-20T12:00:01.000Z; no record of it was read"},
		"paid in time":         {open, store.AuditPaid, verdict(orderclose.AlreadyPaid, 0), time.Hour, "neither  "},
		"cancelled in time":    {open, store.AuditOther, verdict(orderclose.AlreadyClosed, 0), time.Hour, "neither  "},
		"paid, and never sent": {open, store.AuditPaid, decided{}, time.Hour, "neither  "},
		"excluded":             {open, store.AuditExcluded, verdict(orderclose.Excluded, 0), time.Hour, "neither  "},
	} {
		d := compare(c.row, store.AuditPart{Status: string(c.state), State: c.state}, c.verdict, facts{due.Add(c.now), tolerance})
		got := fmt.Sprintf("%s %s %s", d.Class, d.Path, d.What)
		expect.That(t, got == c.want, "%s:\ngot  %s\nwant %s", what, got, c.want)
	}
}

// due is the due time of the orders.
var due = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func rowOf(id string, due, closedAt time.Time) store.ClosedRow {
	return store.ClosedRow{Order: orderclose.Order{ID: id, Due: due}, ClosedAt: closedAt}
}

// The database would close an order once, whatever records follow.
func TestVerdicts_TheFirstFinalVerdictOfAnOrderCounts(t *testing.T) {
	s := newVerdicts()
	for i, v := range []struct {
		id      string
		verdict orderclose.Verdict
	}{
		{"a", orderclose.NotFound}, {"b", orderclose.AlreadyPaid}, {"a", orderclose.NotDue}, {"a", orderclose.Closed}, {"a", orderclose.AlreadyClosed},
		{"b", orderclose.NotFound}, {"c", orderclose.Excluded}, {"c", orderclose.NotFound}, {"d", "of a newer version"}, {"a", orderclose.Closed},
	} {
		s.add(Verdict{OrderID: v.id, Verdict: v.verdict, At: due.Add(time.Duration(i) * time.Second)})
	}
	s.seal()
	size := unsafe.Sizeof(s.all[0])
	expect.That(t, len(s.all) == 4 && size == 24, "%d verdicts of %d bytes are kept, want one of 24 bytes for each order", len(s.all), size)
	for id, want := range map[string]decided{
		"a": {orderclose.Closed, due.Add(3 * time.Second)}, "b": {orderclose.AlreadyPaid, due.Add(time.Second)},
		"c": {orderclose.NotFound, due.Add(7 * time.Second)}, "d": {"unknown", due.Add(8 * time.Second)}, "e": {},
	} {
		got := s.of(id)
		expect.That(t, got == want, "%s: %s at %v, want %s at %v", id, got.verdict, got.at, want.verdict, want.at)
	}
}

// shadowShop is a database with orders by status, and a log of verdicts in two partitions.
type shadowShop struct {
	ops.Log
	ops.AuditStore
	open, closed []store.ClosedRow
	verdicts     [2][]Verdict
	window       [2]kafka.Moment
}

func (s *shadowShop) Now(context.Context) (time.Time, error) { return due.Add(time.Hour), nil }
func (s *shadowShop) AuditRules() store.AuditRules           { return store.AuditRules{ClosedAt: true} }
func (s *shadowShop) AuditParts(context.Context) ([]store.AuditPart, error) {
	return []store.AuditPart{{Status: "WAIT_PAY", State: store.AuditOpen}, {Status: "CLOSED", State: store.AuditClosed}}, nil
}

func (s *shadowShop) ClosedPage(_ context.Context, part store.AuditPart, _, _ time.Time, after orderclose.Order,
	limit int) (page []store.ClosedRow, err error) {
	rows := s.open
	if part.State == store.AuditClosed {
		rows = s.closed
	}
	for _, r := range rows {
		if r.Due.After(after.Due) || r.Due.Equal(after.Due) && r.ID > after.ID {
			page = append(page, r)
		}
	}
	return page[:min(len(page), limit)], nil
}

func (s *shadowShop) Window(_ context.Context, _ string, from, to kafka.Moment) (spans []kafka.Span, err error) {
	s.window = [2]kafka.Moment{from, to}
	for p, verdicts := range s.verdicts {
		spans = append(spans, kafka.Span{Partition: p, End: int64(len(verdicts)) + 1}) // and one of garbage
	}
	return spans, nil
}

func (s *shadowShop) ReadSpan(_ context.Context, _ string, span kafka.Span, each func([]wire.RawRecord) error) error {
	var records []wire.RawRecord
	for _, v := range s.verdicts[span.Partition] {
		m := v.Encode()
		records = append(records, m.Raw())
	}
	garbage := wire.Message{Value: []byte("garbage")}
	return each(append(records, garbage.Raw()))
}

func TestReport_ComparesEachOrderOfTheWindowOnce(t *testing.T) {
	s := &shadowShop{}
	const orders = 2*500 + 7 // of which every tenth is closed by them only
	for i := range orders {
		id, at := fmt.Sprintf("o-%05d", i), due.Add(time.Duration(i)*time.Millisecond)
		s.closed = append(s.closed, rowOf(id, at, at.Add(time.Second)))
		if i%10 != 0 {
			s.verdicts[i%2] = append(s.verdicts[i%2], Verdict{OrderID: id, Verdict: orderclose.Closed, Due: at, At: at})
		}
	}
	from, to := due, due.Add(10*time.Minute)
	s.open = []store.ClosedRow{
		rowOf("before", due.Add(-1), time.Time{}), rowOf("forgotten", due, time.Time{}), rowOf("at the end", to, time.Time{}),
	}
	s.closed = append(s.closed, rowOf("without a time", to.Add(-1), time.Time{}))
	s.verdicts[0] = append(s.verdicts[0], Verdict{OrderID: "without a time", Verdict: orderclose.Closed, Due: to.Add(-1), At: to},
		Verdict{OrderID: "at the end", Verdict: orderclose.Closed, Due: to, At: to})
	seen := map[string]bool{}
	steps := int64(0)
	sum, err := Report(t.Context(), ReportOptions{
		Store: s, Log: s, Topic: "shadow", From: from, To: to, Tolerance: time.Minute,
		OnDifference: func(d Difference) error { seen[d.Order] = true; return nil },
		Progress: func(done, total int64, _ string) {
			expect.That(t, done >= steps && total == 300, "step %d of %d after %d", done, total, steps)
			steps = done
		},
	})
	const theirs = (orders + 9) / 10
	want := Summary{
		From: from, To: to, At: due.Add(time.Hour), Tolerance: "1m0s", Orders: orders + 2,
		Classes:   map[Class]int{Same: orders - theirs + 1, OnlyThey: theirs, OnlyWe: 1},
		Different: theirs + 1, OnlyWe: map[string]int{"WAIT_PAY": 1}, OnlyThey: map[string]int{"no_record": theirs},
		TimesCompared: true, Untimed: 1, Verdicts: orders - theirs + 1, First: due.Add(time.Millisecond), Last: to, Unreadable: 2, TookMillis: sum.TookMillis,
	}
	diff := cmp.Diff(want, sum)
	expect.That(t, diff == "" && err == nil && steps == 300, "%v, step %d (-want +got):\n%s", err, steps, diff)
	expect.That(t, len(seen) == theirs+1 && seen["forgotten"] && seen["o-00000"] && seen["o-01000"], "%d differences: %v", len(seen), seen)
	if s.window[0] >= kafka.MomentOf(from) || s.window[1] != kafka.LogEnd { // a verdict may come late
		t.Errorf("verdicts were read from %v to %v", s.window[0], s.window[1])
	}
}

func TestReport_EndsWithTheErrorOfOnDifference(t *testing.T) {
	full := errors.New("the disk is full")
	s := &shadowShop{open: []store.ClosedRow{rowOf("a", due, time.Time{})}}
	_, err := Report(t.Context(), ReportOptions{
		Store: s, Log: s, From: due, To: due.Add(time.Minute), Tolerance: time.Minute, OnDifference: func(Difference) error { return full },
	})
	expect.That(t, errors.Is(err, full), "%v", err)
}
