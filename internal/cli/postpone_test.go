package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/clients"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/sqlite"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
)

// postponing is a database with orders, and the command on it.
type postponing struct {
	*testing.T
	s    *session
	file string // of the plan
}

func newPostponing(t *testing.T) *postponing {
	t.Helper()
	db, err := sqlite.Open(sqlite.Memory, nil)
	if err == nil {
		t.Cleanup(func() { db.Close() })
		err = db.Migrate(t.Context())
	}
	now := time.Now()
	for i, category := range []string{"virtual", "physical", "virtual", "virtual"} {
		if err == nil {
			o := orderclose.Order{ID: fmt.Sprint("o-", i), Category: category, CreatedAt: now.Add(time.Duration(i-4) * time.Hour),
				Due: now.Add(time.Duration(i+1) * time.Hour)}
			err = scenario.OrdersOf(db).CreateOrder(t.Context(), o, nil)
		}
	}
	must.Do(t, err)
	return &postponing{t, &session{Clients: clients.Clients{Store: db}, cfg: config.Default(), logger: slog.New(slog.DiscardHandler)},
		filepath.Join(t.TempDir(), "plan.jsonl")}
}

// run runs the command, and decodes its output.
func (p *postponing) run(into any, f postponeFlags) error {
	p.Helper()
	f.file = p.file
	plan, err := f.plan(time.Now())
	if err != nil {
		p.Fatal(err)
	}
	plan.Database = "db:3306/shop"
	var out bytes.Buffer
	c := &common{output: "json", quiet: true, env: Env{Stdout: &out, Stderr: io.Discard}}
	err = c.postpone(p.Context(), p.s, plan, f)
	if out.Len() > 0 {
		if err := json.Unmarshal(out.Bytes(), into); err != nil {
			p.Fatal(err)
		}
	}
	return err
}

// later returns the flags that select the virtual orders that are due half an hour before so many
// hours have passed.
func later(hours int) postponeFlags {
	before := time.Now().Add(time.Duration(hours)*time.Hour - 30*time.Minute)
	return postponeFlags{categories: []string{"virtual"}, dueBefore: stamp(before), by: "20h"}
}

// due returns the hours until each order is due, rounded, in the order of the ids.
func (p *postponing) due() (hours []int) {
	p.Helper()
	for i := range 4 {
		history, err := p.s.Store.OrderHistory(p.Context(), fmt.Sprint("o-", i))
		if err != nil {
			p.Fatal(err)
		}
		hours = append(hours, int(time.Until(history.Order.Due).Hours()+0.5))
	}
	return hours
}

func TestPostpone_ChangesWhatItsPlanHasAndNothingTwice(t *testing.T) {
	p := newPostponing(t)
	var sum ops.PostponeSummary
	if err := p.run(&sum, later(4)); err != nil || sum.Orders != 2 || sum.OtherCategories != 1 || fmt.Sprint(p.due()) != "[1 2 3 4]" {
		t.Fatalf("%+v, %v, due in %v", sum, err, p.due())
	}
	if err := p.run(&sum, later(4)); codeOf(err) != int(Refused) || !strings.Contains(err.Error(), "would move orders twice") {
		t.Errorf("a plan in the same file: exit %d, %v", codeOf(err), err)
	}
	for _, postponed := range []int64{2, 0} {
		var r ops.PostponeOutcome
		if err := p.run(&r, postponeFlags{yes: true}); err != nil || r.Postponed != postponed || r.Before != 2-postponed || fmt.Sprint(p.due()) != "[21 2 23 4]" {
			t.Errorf("%+v, %v, due in %v", r, err, p.due())
		}
	}
}

// The delay was wrong from three and a half to one and a half hours ago.
func TestPostpone_SelectsTheOrdersThatWereCreatedBetweenTwoTimes(t *testing.T) {
	p := newPostponing(t)
	var sum ops.PostponeSummary
	if err := p.run(&sum, postponeFlags{dueBefore: stamp(time.Now().Add(24 * time.Hour)), createdFrom: "210m", createdBefore: "90m", by: "20h"}); err != nil ||
		sum.Orders != 2 || sum.OtherCreation != 2 {
		t.Errorf("%+v, %v", sum, err)
	}
	if err := p.run(new(ops.PostponeOutcome), postponeFlags{yes: true}); err != nil || fmt.Sprint(p.due()) != "[1 22 23 4]" {
		t.Errorf("%v, due in %v", err, p.due())
	}
}

func TestPostpone_NeedsAColumnToSelectByCreation(t *testing.T) {
	err := postponeError(fmt.Errorf("plan: %w", store.ErrNoCreated))
	if codeOf(err) != int(Refused) || !strings.Contains(err.Error(), "key orders.created") || !strings.Contains(err.Error(), "select by --due-before only") {
		t.Errorf("exit %d, %v", codeOf(err), err)
	}
}

func TestPostpone_LeavesNoFileIfThereIsNoPlan(t *testing.T) {
	p := newPostponing(t)
	var sum ops.PostponeSummary
	if err := p.run(&sum, later(1)); err != nil || sum.Orders != 0 {
		t.Errorf("%+v, %v", sum, err)
	}
	beyond := later(4)
	beyond.by = "30d"
	if err := p.run(nil, beyond); codeOf(err) != int(Refused) || !strings.Contains(err.Error(), "delays.max, 30d") {
		t.Errorf("beyond delays.max: exit %d, %v", codeOf(err), err)
	}
	p.s.cfg.Closer.Kind = config.KindHTTP
	if err := p.run(nil, later(4)); codeOf(err) != int(Refused) || !strings.Contains(err.Error(), "a service (closer.http.url)") {
		t.Errorf("a service closes: exit %d, %v", codeOf(err), err)
	}
	if _, err := os.Stat(p.file); !os.IsNotExist(err) {
		t.Errorf("the file exists: %v", err)
	}
}

func TestPostpone_RefusesAPlanThatDoesNotFit(t *testing.T) {
	p := newPostponing(t)
	if err := p.run(nil, postponeFlags{yes: true}); codeOf(err) != int(Usage) || !strings.Contains(err.Error(), "plan.jsonl") {
		t.Errorf("no file: exit %d, %v", codeOf(err), err)
	}
	must.Do(t, p.run(new(ops.PostponeSummary), later(4)))
	content := must.Get(os.ReadFile(p.file))(t)
	for want, text := range map[string]string{
		"the plan is incomplete": strings.Replace(string(content), `{"orders":2}`+"\n", "", 1),
		"not a plan":             "orders:\n",
		"it is for table orders of other:3306/shop, and this is table orders of db:3306/shop": strings.Replace(string(content), "db:3306", "other:3306", 1),
	} {
		must.Do(t, os.WriteFile(p.file, []byte(text), 0o600))
		if err := p.run(nil, postponeFlags{yes: true}); codeOf(err) != int(Refused) || !strings.Contains(err.Error(), want) || fmt.Sprint(p.due()) != "[1 2 3 4]" {
			t.Errorf("exit %d, %v, want %s; due in %v", codeOf(err), err, want, p.due())
		}
	}
}

func TestPostpone_Tables(t *testing.T) {
	first, last := at, at.Add(time.Hour)
	plan := ops.PostponePlan{Table: "t_order", Categories: []string{"virtual", "gift card\n"}, DueBefore: at.Add(2 * time.Hour), By: "20m"}
	golden(t, "postpone_plan", func(w io.Writer) {
		printPostponePlan(w, ops.PostponeSummary{PostponePlan: plan, Orders: 1200, Overdue: 17, OtherCategories: 300, FirstDue: first, LastDue: last},
			"my plan.jsonl", postponeCommand("my plan.jsonl"))
	})
	golden(t, "postpone_nothing", func(w io.Writer) {
		nothing := ops.PostponePlan{Table: "orders", DueBefore: at, CreatedFrom: at.Add(-2 * time.Hour), CreatedBefore: at.Add(-time.Hour), By: "20m"}
		printPostponePlan(w, ops.PostponeSummary{PostponePlan: nothing, OtherCreation: 3}, "plan.jsonl", "")
	})
	golden(t, "postpone", func(w io.Writer) {
		printPostponed(w, ops.PostponeOutcome{PostponePlan: plan, Orders: 1200, Postponed: 1000, Before: 180, NotOpen: 17, Moved: 2, NotFound: 1})
	})
}

// A typo selects nothing, and must not look like success.
func TestPostpone_RefusesACategoryThatNobodyKnows(t *testing.T) {
	p := newPostponing(t)
	c := &common{}
	p.s.cfg.Delays.ByCategory = map[string]time.Duration{"tickets": time.Minute}
	if err := c.checkCategories(t.Context(), p.s, "tickets", "virtual", "physical", ""); err != nil {
		t.Errorf("one is in topics.yaml, two are of orders: %v", err)
	}
	f := later(9)
	f.categories = []string{"virtual", "vitrual"}
	if err := p.run(nil, f); codeOf(err) != int(NotFound) || !strings.Contains(err.Error(), "--category vitrual") {
		t.Errorf("%v", err)
	}
}
