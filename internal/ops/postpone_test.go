package ops

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// openOrders is a database with open orders.
type openOrders struct {
	now        time.Time
	orders     []orderclose.Order // by due time and id
	due        map[string]time.Time
	uncategory error
	uncreated  error
	reach      error
	fail       error // returned by the second Postpone
	calls      int
}

func (d *openOrders) Now(context.Context) (time.Time, error) { return d.now, nil }

func (d *openOrders) Overdue(_ context.Context, cutoff time.Time, after orderclose.Order, limit int) (page []orderclose.Order, err error) {
	begin := 1 + slices.IndexFunc(d.orders, func(o orderclose.Order) bool { return o.ID == after.ID })
	for _, o := range d.orders[begin:] {
		if !o.Due.After(cutoff) && len(page) < min(limit, 7) { // several pages
			page = append(page, o)
		}
	}
	return page, nil
}

func (d *openOrders) Categories(context.Context, []orderclose.CloseRequest) (map[string]string, error) {
	return nil, d.uncategory
}

func (d *openOrders) CheckCreated() error { return d.uncreated }

func (d *openOrders) InReach(orderclose.Order, time.Time) error { return d.reach }

func (d *openOrders) Postpone(_ context.Context, orders []orderclose.Order, by time.Duration) ([]store.PostponeResult, error) {
	if d.calls++; d.calls == 2 && d.fail != nil {
		return nil, d.fail
	}
	out := make([]store.PostponeResult, len(orders))
	for i, o := range orders {
		at, found := d.due[o.ID]
		switch {
		case !found:
			out[i] = store.PostponeGone
		case at.Equal(o.Due.Add(by)):
			out[i] = store.PostponedBefore
		case !at.Equal(o.Due):
			out[i] = store.PostponeMoved
		default:
			out[i], d.due[o.ID] = store.Postponed, at.Add(by)
		}
	}
	return out, nil
}

// newOrders returns n orders, due a second apart from a minute ago on; each third is physical, the
// others virtual.
func newOrders(n int) *openOrders {
	d := &openOrders{now: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC), due: map[string]time.Time{}}
	for i := range n {
		o := orderclose.Order{ID: fmt.Sprintf("o-%04d", i), Category: "virtual", CreatedAt: d.now.Add(-time.Hour), Due: d.now.Add(time.Duration(i-60) * time.Second)}
		if i%3 == 0 {
			o.Category = "physical"
		}
		d.orders, d.due[o.ID] = append(d.orders, o), o.Due
	}
	return d
}

func (d *openOrders) postponePlan() PostponePlan {
	return PostponePlan{Database: "db:3306/shop", Table: "orders", Categories: []string{"virtual"}, DueBefore: d.now.Add(10 * time.Minute), By: "20m"}
}

const month = 30 * 24 * time.Hour

func TestPostpone_APlanIsCarriedOutOnceInspiteOfAnInterruption(t *testing.T) {
	d := newOrders(900)
	var file bytes.Buffer
	sum, err := PlanPostpone(t.Context(), d, d.postponePlan(), month, &file)
	first, last := d.orders[1].Due, d.orders[659].Due // the 660th is due at DueBefore
	want := PostponeSummary{PostponePlan: d.postponePlan(), Orders: 440, Overdue: 40, OtherCategories: 220, FirstDue: first, LastDue: last}
	want.Format, want.CreatedAt = 1, d.now
	if diff := cmp.Diff(want, sum); err != nil || diff != "" {
		t.Fatalf("%v (-want +got):\n%s", err, diff)
	}
	lines := strings.Count(file.String(), "\n")
	expect.That(t, lines == 442 && d.calls <= 0, "%d lines, want the plan, 440 orders and their number; %d changes", lines, d.calls)
	d.fail = errors.New("no connection")
	d.due["o-0001"], d.due["o-0002"] = d.now, d.now // moved since
	delete(d.due, "o-0004")
	run := func() (PostponeOutcome, error) {
		var progress []int64
		r, err := ApplyPostpone(t.Context(), d, bytes.NewReader(file.Bytes()), d.postponePlan(), month, func(done, total int64) {
			progress = append(progress, done, total)
		})
		if len(progress) > 0 && (progress[len(progress)-2] != r.handled() || progress[1] != 440) {
			t.Errorf("progress %v of %+v", progress, r)
		}
		return r, err
	}
	if r, err := run(); !errors.Is(err, d.fail) || r.Postponed != 197 || r.handled() != 200 {
		t.Errorf("the second page fails: %+v, %v", r, err)
	}
	for _, postponed := range []int64{240, 0} {
		r, err := run()
		want := PostponeOutcome{PostponePlan: sum.PostponePlan, Orders: 440, Postponed: postponed, Before: 437 - postponed, Moved: 2, NotFound: 1}
		if diff := cmp.Diff(want, r); err != nil || diff != "" {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
	}
	for _, o := range d.orders {
		moved := d.due[o.ID].Sub(o.Due)
		if o.ID > "o-0004" && (moved == 20*time.Minute) != (o.Category == "virtual" && o.Due.Before(d.now.Add(10*time.Minute))) {
			t.Errorf("order %s of category %s, due at %v, was moved by %v", o.ID, o.Category, o.Due, moved)
		}
	}
}

func TestPostpone_RefusesWhatItMayNotChange(t *testing.T) {
	for what, c := range map[string]struct {
		set  func(*openOrders, *PostponePlan)
		want error
		says string
	}{
		"a due time beyond the maximum": {func(_ *openOrders, p *PostponePlan) { p.By = "30d" }, ErrBeyondMaxDelay,
			`order "o-0061" would be due at 2026-12-20T12:00:01Z, 720h0m1s ahead, beyond delays.max, 30d`},
		"orders without categories": {func(d *openOrders, _ *PostponePlan) { d.uncategory = store.ErrNoCategory }, store.ErrNoCategory, ""},
		"orders without creation":   {func(d *openOrders, p *PostponePlan) { d.uncreated, p.CreatedFrom = store.ErrNoCreated, d.now }, store.ErrNoCreated, ""},
		"an order out of reach":     {func(d *openOrders, _ *PostponePlan) { d.reach = store.ErrOutOfReach }, store.ErrOutOfReach, ""},
		"a fraction of a second":    {func(_ *openOrders, p *PostponePlan) { p.By = "1500ms" }, nil, "whole number of seconds"},
	} {
		d := newOrders(90)
		p := d.postponePlan()
		c.set(d, &p)
		var file bytes.Buffer
		if _, err := PlanPostpone(t.Context(), d, p, month, &file); err == nil || c.want != nil && !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v; want %v %q", what, err, c.want, c.says)
		}
	}
	d := newOrders(1)
	p := d.postponePlan()
	d.uncategory, d.uncreated, p.Categories = store.ErrNoCategory, store.ErrNoCreated, nil
	if sum, err := PlanPostpone(t.Context(), d, p, month, new(bytes.Buffer)); err != nil || sum.Orders != 1 {
		t.Errorf("without a category and a time of creation: %+v, %v", sum, err)
	}
}

func TestPostpone_SelectsByCreation(t *testing.T) {
	d := newOrders(4)
	for i := range d.orders {
		d.orders[i].CreatedAt = d.now.Add(time.Duration(i) * time.Minute)
	}
	d.orders[3].CreatedAt = time.Time{} // not known
	at := func(minute int) time.Time { return d.now.Add(time.Duration(minute) * time.Minute) }
	for what, c := range map[string]struct {
		from, before time.Time
		want         []string
	}{
		"all":           {want: []string{"o-0000", "o-0001", "o-0002", "o-0003"}},
		"from a time":   {from: at(1), want: []string{"o-0001", "o-0002"}},
		"before a time": {before: at(2), want: []string{"o-0000", "o-0001"}},
		"between times": {from: at(1), before: at(2), want: []string{"o-0001"}},
	} {
		p := d.postponePlan()
		p.Categories, p.CreatedFrom, p.CreatedBefore = nil, c.from, c.before
		var file bytes.Buffer
		sum, err := PlanPostpone(t.Context(), d, p, month, &file)
		n := int64(len(c.want))
		expect.That(t, err == nil && sum.Orders == n && sum.OtherCreation == 4-n, "%s: %+v, %v", what, sum, err)
		var ids []string
		read, _, err := readPostponePlan(&file, func(PostponePlan) error { return nil }, func(o orderclose.Order) error {
			ids = append(ids, o.ID)
			return nil
		})
		if diff := cmp.Diff(c.want, ids); err != nil || diff != "" || !read.CreatedFrom.Equal(c.from) || !read.CreatedBefore.Equal(c.before) {
			t.Errorf("%s: the file says %+v, %v (-want +got):\n%s", what, read, err, diff)
		}
	}
}

func TestPostpone_ABadPlanChangesNothing(t *testing.T) {
	d := newOrders(90)
	var file bytes.Buffer
	must.Get(PlanPostpone(t.Context(), d, d.postponePlan(), month, &file))(t)
	lines := strings.SplitAfter(file.String(), "\n")
	whole, other := file.String(), d.postponePlan()
	other.Table = "shipments"
	for what, c := range map[string]struct {
		plan string
		same PostponePlan
		want error
	}{
		"no file":                 {"", d.postponePlan(), ErrNoPlan},
		"another file":            {"{}\n" + whole, d.postponePlan(), ErrNoPlan},
		"a later format":          {strings.Replace(whole, `postpone":1`, `postpone":2`, 1), d.postponePlan(), ErrNoPlan},
		"without the last line":   {strings.Join(lines[:61], ""), d.postponePlan(), ErrIncompletePlan},
		"cut in a line":           {whole[:len(whole)-20], d.postponePlan(), ErrNoPlan},
		"without a line":          {lines[0] + strings.Join(lines[2:], ""), d.postponePlan(), ErrIncompletePlan},
		"with a line at the end":  {whole + lines[1], d.postponePlan(), ErrIncompletePlan},
		"an order without an id":  {strings.Replace(whole, `"id":"o-0001",`, "", 1), d.postponePlan(), ErrNoPlan},
		"for another table":       {whole, other, ErrOtherDatabase},
		"by more than is allowed": {strings.Replace(whole, `"20m"`, `"40d"`, 1), d.postponePlan(), ErrBeyondMaxDelay},
		"by a negative time":      {strings.Replace(whole, `"20m"`, `"-20m"`, 1), d.postponePlan(), nil},
	} {
		_, err := ApplyPostpone(t.Context(), d, strings.NewReader(c.plan), c.same, month, nil)
		if err == nil || c.want != nil && !errors.Is(err, c.want) || d.calls > 0 {
			t.Errorf("%s: %v, after %d changes; want %v", what, err, d.calls, c.want)
		}
	}
}
