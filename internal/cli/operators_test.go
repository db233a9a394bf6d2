package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/compensator"
	"github.com/orderclose/orderclose/internal/clients"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/pausing"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/sqlite"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
	"github.com/orderclose/orderclose/internal/wire"
	"github.com/orderclose/orderclose/pipeline"
)

// twoOperators have a broker and a database. Each round has an overdue order, its late payment, its record in the close topic and its dead letter.
type twoOperators struct {
	*rig
	s     *session
	order orderclose.Order
	late  int64
	ended [2][]pausing.Pause // that each operator has ended
}

// done is what one operator has done.
type done struct {
	name           string
	who            int
	code           int
	stdout, stderr string
	err            error // of a command that the test calls with its clients
	changed        int   // orders that such a command has changed
}

// operation is what an operator does: a command of acting with flags.
type operation struct {
	command string
	codes   []int // that it may exit with
	args    func(w *twoOperators, who int) []string
	do      func(ctx context.Context, w *twoOperators, who int) (changed int, err error) // in place of args
}

func always(args ...string) func(*twoOperators, int) []string {
	return func(*twoOperators, int) []string { return args }
}

// reason is the reason of an operator's pause.
func (w *twoOperators) reason(who int) string { return fmt.Sprint(w.order.ID, " by ", who) }

// pauseFor pauses closing.
func pauseFor(lasting time.Duration, category string, replace bool) func(context.Context, *twoOperators, int) (int, error) {
	return func(ctx context.Context, w *twoOperators, who int) (int, error) {
		ended, err := w.s.Store.Pause(ctx, category, lasting, w.reason(who), replace)
		if errors.Is(err, pausing.ErrEndsLater) {
			return 0, Exit(Refused, err)
		}
		w.ended[who] = ended
		return 0, err
	}
}

// lasting is how long the pause of an operation lasts.
var lasting = map[string]time.Duration{"a long pause": 4 * time.Hour, "a short pause": time.Minute, "a replacement": 2 * time.Minute}

var operations = map[string]operation{
	"a long pause":          {command: "pause", codes: []int{0, 5}, do: pauseFor(4*time.Hour, "", false)},
	"a short pause":         {command: "pause", codes: []int{0, 5}, do: pauseFor(time.Minute, "", false)},
	"a replacement":         {command: "pause", codes: []int{0}, do: pauseFor(2*time.Minute, "", true)},
	"a pause of a category": {command: "pause", codes: []int{0}, do: pauseFor(3*time.Minute, "virtual", false)},
	"a resume": {command: "resume", codes: []int{0}, do: func(ctx context.Context, w *twoOperators, who int) (_ int, err error) {
		w.ended[who], err = w.s.Store.Resume(ctx, "")
		return 0, err
	}},
	"a replay": {command: "replay", codes: []int{0}, args: func(w *twoOperators, _ int) []string {
		return []string{"replay", "--from", "1h", "--order", w.order.ID, "--yes"}
	}},
	"a replay of dead letters": {command: "replay --dead-letters", codes: []int{0}, args: func(w *twoOperators, _ int) []string {
		return []string{"replay", "--dead-letters", "--from", "1h", "--order", w.order.ID, "--yes"}
	}},
	"topics apply": {command: "topics apply", codes: []int{0}, args: always("topics", "apply")},
	"a record": {command: "send", codes: []int{0}, args: func(w *twoOperators, who int) []string {
		return []string{"send", "--id", fmt.Sprint(w.order.ID, "-sent-", who)}
	}},
	"a refund":    {command: "payments resolve", codes: []int{0, 5}, do: resolveAs(store.Refunded)},
	"a reopening": {command: "payments resolve", codes: []int{0, 5}, do: resolveAs(store.Reopened)},
	"events again": {command: "events again", codes: []int{0}, do: func(ctx context.Context, w *twoOperators, _ int) (int, error) {
		_, err := ops.WriteEventsAgain(ctx, w.s.Store, time.Now().Add(-time.Hour), time.Now(), ops.EventsRate, func(int64) {})
		return 0, err
	}},
	"a sweep": {command: "compensate", codes: []int{0, 5}, do: func(ctx context.Context, w *twoOperators, _ int) (int, error) {
		a, err := pipeline.New(w.s.options())
		if err != nil {
			return 0, err
		}
		var comp *compensator.Compensator
		if comp, err = a.Compensator(); err != nil {
			return 0, err
		}
		r, err := comp.Sweep(ctx, false)
		if errors.Is(err, orderclose.ErrPaused) {
			err = Exit(Refused, err)
		}
		return r.Closed, err
	}},
	"a migration": {command: "migrate", codes: []int{0}, do: func(ctx context.Context, w *twoOperators, _ int) (int, error) {
		return 0, w.s.Store.Migrate(ctx)
	}},
}

func resolveAs(how store.LateResolution) func(context.Context, *twoOperators, int) (int, error) {
	return func(ctx context.Context, w *twoOperators, _ int) (int, error) {
		c := &common{output: "json", quiet: true, env: Env{Stdout: io.Discard, Stderr: io.Discard}}
		err := c.resolveLate(ctx, w.s.Store, w.late, how, true)
		if err != nil {
			return 0, err
		}
		return 1, nil
	}
}

// begin prepares a round.
func (w *twoOperators) begin(round int) {
	ctx, now := w.t.Context(), time.Now().Truncate(time.Millisecond)
	w.order = orderclose.Order{ID: fmt.Sprint("order-", round), CreatedAt: now.Add(-time.Hour), Due: now.Add(-2 * time.Minute)}
	must.Do(w.t, scenario.OrdersOf(w.s.Store).CreateOrder(ctx, w.order, nil))
	w.late, w.ended = int64(round), [2][]pausing.Pause{}
	must.Get(w.s.Store.DB().ExecContext(ctx, "INSERT INTO late_payments (id, order_id, payment_id, source, found_at) VALUES (?, ?, 'p', 'callback', ?)", w.late,
		w.order.ID, now.UnixMilli()))(w.t)
	w.send(w.cfg.Topics.Close, w.order.ID, w.order.Due)
	w.addDeadLetter(w.order.ID, "failed", w.order.Due)
}

// act lets an operator do something.
func (w *twoOperators) act(name string, who int) (d done) {
	d.name, d.who = name, who
	o := operations[name]
	if o.do != nil {
		d.changed, d.err = o.do(w.t.Context(), w, who)
		d.code = codeOf(d.err)
		return d
	}
	args := o.args(w, who)
	d.stdout, d.stderr, d.code = w.cli(append(args, "-o", "json")...)
	return d
}

// Each pair of commands runs at once. No command undoes another silently.
func TestOperators_TwoAtOnce(t *testing.T) {
	r := newRig(t)
	db := must.Get(sqlite.Open(sqlite.Memory, nil))(t)
	t.Cleanup(func() { db.Close() })
	must.Do(t, db.Migrate(t.Context()))
	w := &twoOperators{rig: r, s: &session{Clients: clients.Clients{Store: db}, cfg: r.cfg, logger: slog.New(slog.DiscardHandler)}}
	r.cli("topics", "apply")
	names := slices.Sorted(maps.Keys(operations))
	tested := map[string]bool{}
	round := 0
	for i, first := range names {
		tested[operations[first].command] = true
		for _, second := range names[i:] {
			if (operations[first].do == nil) != (operations[second].do == nil) {
				continue // one needs Kafka alone, the other the database alone
			}
			round++
			w.begin(round)
			var both [2]done
			var acting sync.WaitGroup
			for who, name := range []string{first, second} {
				acting.Go(func() { both[who] = w.act(name, who) })
			}
			acting.Wait()
			what := first + " beside " + second
			for who, d := range both {
				expect.That(t, slices.Contains(operations[d.name].codes, d.code), "%s: %s exits with %d: %s%v", what, d.name, d.code, d.stderr, d.err)
				w.check(what, d, both[1-who])
			}
			w.checkDatabase(what, both)
			must.Get(db.DB().ExecContext(t.Context(), "DELETE FROM pauses"))(t)
		}
	}
	for _, command := range acting {
		expect.That(t, tested[command], "no operator runs %s: add it to operations", command)
	}
}

// check checks that what a command has done is still done, or that the command of the other operator says otherwise.
func (w *twoOperators) check(what string, d, other done) {
	w.t.Helper()
	switch operations[d.name].command {
	case "pause":
		if d.code == 5 {
			says := d.err.Error()
			named := strings.Contains(says, w.reason(other.who)) && strings.Contains(says, "--replace")
			expect.That(w.t, named, "%s: the refusal does not name the pause: %s", what, says)
			return
		}
		var on []string
		for _, p := range must.Get(w.s.Store.Pauses(w.t.Context()))(w.t) {
			on = append(on, p.Reason)
		}
		told := slices.ContainsFunc(w.ended[other.who], func(p pausing.Pause) bool { return p.Reason == w.reason(d.who) })
		lengthened := slices.Contains(on, w.reason(other.who)) && lasting[other.name] >= lasting[d.name]
		expect.That(w.t, slices.Contains(on, w.reason(d.who)) || told || lengthened, "%s: %s is not on, and nobody has said so: on are %q", what, d.name, on)
	case "replay":
		sent := slices.ContainsFunc(w.records(w.cfg.Topics.Close), func(m wire.Message) bool { return string(m.Key) == w.order.ID && m.Raw().IsCopy() })
		expect.That(w.t, sent, "%s: the close topic has no copy of the record", what)
	}
}

// checkDatabase checks that the order and its late payment were changed once, and as the commands say.
func (w *twoOperators) checkDatabase(what string, both [2]done) {
	w.t.Helper()
	changed := map[string]int{}
	ran := map[string]bool{}
	for _, d := range both {
		changed[operations[d.name].command] += d.changed
		ran[operations[d.name].command] = true
	}
	if ran["compensate"] && !ran["pause"] { // a sweep closes nothing during a pause
		expect.Equal(w.t, changed["compensate"], 1, "%s: closes of the order", what)
	}
	if ran["payments resolve"] {
		expect.Equal(w.t, changed["payments resolve"], 1, "%s: resolutions of the late payment", what)
	}
	must.Get(w.s.Store.DB().ExecContext(w.t.Context(), "DELETE FROM orders"))(w.t)
}
