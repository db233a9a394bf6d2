package console

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/orderclose/orderclose/internal/console/access"
	"github.com/orderclose/orderclose/internal/health"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/pausing"
	"github.com/orderclose/orderclose/internal/store"
)

// An action is two requests with the same fields. The first one shows what the action would change, and changes nothing. The second one has
// the field confirm too, and carries the action out. The console remembers nothing between them.

// The kinds of actions.
const (
	kindPause  = "pause"
	kindResume = "resume"

	// What became of the money of a late payment.
	kindRefunded = string(store.Refunded)
	kindReopened = string(store.Reopened)
)

// actionState is how far an action is.
type actionState string

const (
	asked   actionState = "asked"   // it waits for its confirmation
	nothing actionState = "nothing" // it would change nothing
	running actionState = "running" // only in the log
	done    actionState = "done"
	failed  actionState = "failed" // it may have changed a part
)

const (
	// maxValues is how many values a field of an action may have.
	maxValues = 1000
	// shownValues is how many values of a field the page of an action shows.
	shownValues = 20
	// actionTime bounds how long an action takes. It is less than the time of a request.
	actionTime = 4 * time.Minute
)

// action is a change that a person asks for.
type action struct {
	Kind    string
	State   actionState
	Fields  url.Values // of the form that confirms it
	Summary any        // what it would change, or has changed
	Planned int        // payments that it is about; 0: it counts none
	Handled int        // of them
	Error   string

	run func(context.Context) (summary any, handled int, err error)
}

// badForm is an error of the fields of a form.
type badForm struct{ error }

// serveAction shows what an action would change. If the request confirms it, serveAction carries it out, and shows the result.
func (c *Console) serveAction(w http.ResponseWriter, r *http.Request) {
	by, fields := access.From(r.Context()), inUTC(r.PostForm, zoneOf(r))
	confirmed := fields.Get("confirm") != ""
	fields.Del("confirm")
	a, err := c.actionOf(r.Context(), by.Name, fields)
	if err != nil {
		status := http.StatusServiceUnavailable
		if _, wrong := errors.AsType[badForm](err); wrong {
			status = http.StatusBadRequest
		}
		if a.Kind == kindPause {
			c.renderDelays(w, r, status, delaysData{Form: fields, Problem: err})
			return
		}
		c.renderProblem(w, r, status, "error.no_action", err.Error())
		return
	}
	if confirmed && a.State == asked {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(actionTime + time.Minute)) // that of the server is for pages
		c.carryOut(r.Context(), &a, by)
	}
	p := c.newPage(r, "action", a)
	p.Path = a.From()
	c.render(w, r, http.StatusOK, p)
}

// carryOut carries an action out. The action ends early if the browser goes away, or if the console is closed, which waits for it.
func (c *Console) carryOut(ctx context.Context, a *action, by access.Identity) {
	c.acting.RLock()
	defer c.acting.RUnlock()
	ctx, cancel := context.WithTimeout(ctx, actionTime)
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)()
	if c.ctx.Err() != nil {
		cancel() // AfterFunc does it later
	}
	a.State = running
	c.audit(ctx, *a, by)
	summary, handled, err := a.run(ctx)
	if summary != nil {
		a.Summary = summary
	}
	if a.State, a.Handled = done, handled; err != nil {
		a.State, a.Error = failed, err.Error()
	}
	c.audit(ctx, *a, by)
}

// audit writes the line of an action that begins, or that has ended. The audit log has the second.
func (c *Console) audit(ctx context.Context, a action, by access.Identity) {
	selected := url.Values{}
	for _, field := range a.Shown() {
		selected[field.Name] = field.all
	}
	fields, result := fmt.Sprintf("%.500s", selected.Encode()), strings.TrimSuffix(string(a.State)+": "+a.Error, ": ")
	c.o.Logger.Info("console action", "who", by.Name, "role", by.Role, "address", by.Address, "action", a.Kind,
		"selected", fields, "planned", a.Planned, "handled", a.Handled, "result", result)
	if a.State == running {
		return
	}
	ops.Forget(c.asks, health.KafkaCheck)
	err := c.pipeline().KeepAction(context.WithoutCancel(ctx), by.Name, a.Kind+" "+fields, fmt.Sprintf("%s, %d of %d", result, a.Handled, a.Planned))
	if err != nil {
		c.o.Logger.Error("writing an action of the console to the audit log failed", "action", a.Kind, "err", err)
	}
}

// actionOf returns the action that a form asks for, with what it would change. An error of the fields is a badForm.
func (c *Console) actionOf(ctx context.Context, who string, fields url.Values) (action, error) {
	a := action{Kind: fields.Get("kind"), State: asked, Fields: fields}
	for name, values := range fields {
		if len(values) > maxValues {
			return a, badForm{fmt.Errorf("%.40q has %d values, want at most %d: select by another field, or act in parts", name, len(values), maxValues)}
		}
	}
	switch a.Kind {
	case kindRefunded, kindReopened:
		return c.latePayment(ctx, a, who)
	case kindPause, kindResume:
		return c.pauses(ctx, a)
	}
	return a, badForm{fmt.Errorf("kind is %.40q, want pause, resume, refunded or reopened", a.Kind)}
}

// latePayment records what became of the money of a late payment: late is its id.
func (c *Console) latePayment(ctx context.Context, a action, who string) (action, error) {
	if c.o.Store == nil {
		return a, health.ErrNoDatabase
	}
	id, err := strconv.ParseInt(a.Fields.Get("late"), 10, 64)
	if err != nil {
		return a, badForm{fmt.Errorf("late is %.40q, want the id of a late payment", a.Fields.Get("late"))}
	}
	p, err := c.o.Store.LatePayment(ctx, id)
	if a.Summary, a.Planned = p, 1; p.Resolution != "" {
		a.State = nothing
	}
	a.run = func(ctx context.Context) (any, int, error) {
		defer c.late.Forget()
		defer ops.Forget(c.asks, ops.LateCheck)
		resolved, err := c.o.Store.ResolveLate(ctx, id, store.LateResolution(a.Kind), who)
		if err != nil {
			return nil, 0, err
		}
		return resolved, 1, nil
	}
	return a, err
}

// pauseSummary is what a pause, or the end of one, is about.
type pauseSummary struct {
	Category string
	On       []pausing.Pause // that are on now
	Ended    []pausing.Pause // by a resume, or earlier than they would end
}

// The longest category and the longest reason of a pause, in characters: those of the columns.
const maxCategory, maxReason = 255, 500

// pauses closes no orders for a while, or ends a pause: category; and for a pause for, reason and replace, with which it may end another
// pause earlier.
func (c *Console) pauses(ctx context.Context, a action) (action, error) {
	p := pauseSummary{Category: a.Fields.Get("category")}
	errs := []error{checkText("category", p.Category, maxCategory)}
	isPause, reason, replace, lasting := a.Kind == kindPause, a.Fields.Get("reason"), a.Fields.Get("replace") != "", time.Duration(0)
	if isPause {
		var err error
		lasting, err = ops.ParsePause(a.Fields.Get("for"))
		errs = append(errs, err, ops.CheckReason(reason), checkText("reason", reason, maxReason))
	}
	if err := errors.Join(errs...); err != nil {
		return a, badForm{err}
	}
	kept, err := c.pipeline().PausesDatabase()
	if err == nil {
		p.On, err = kept.Pauses(ctx)
	}
	if err != nil {
		return a, err
	}
	if isPause {
		if p.Ended, err = pausing.Shortened(p.On, p.Category, time.Now().Add(lasting), replace); err != nil {
			return a, badForm{err}
		}
	}
	if a.Summary = p; !isPause && !slices.ContainsFunc(p.On, func(on pausing.Pause) bool { return on.Category == p.Category }) {
		a.State = nothing
	}
	a.run = func(ctx context.Context) (_ any, _ int, err error) {
		if isPause {
			p.Ended, err = kept.Pause(ctx, p.Category, lasting, reason, replace)
		} else {
			p.Ended, err = kept.Resume(ctx, p.Category)
		}
		if ops.Forget(c.asks, ops.PausesCheck); err != nil {
			return nil, 0, err
		}
		p.On, err = kept.Pauses(ctx)
		return p, 0, err
	}
	return a, nil
}

// checkText returns an error if a text that is stored has control characters, or more than most
// characters.
func checkText(field, value string, most int) error {
	if !utf8.ValidString(value) || utf8.RuneCountInString(value) > most || strings.ContainsFunc(value, unicode.IsControl) {
		return fmt.Errorf("%s has control characters, or more than %d characters", field, most)
	}
	return nil
}

// given returns the values that are not empty, each once: a form sends empty fields too.
func given(values []string) (some []string) {
	seen := map[string]bool{"": true}
	for _, v := range values {
		if v = strings.TrimSpace(v); !seen[v] {
			seen[v] = true
			some = append(some, v)
		}
	}
	return some
}

// selected is a field of an action that a person reads.
type selected struct {
	Name   string
	Values []string
	More   int // values that are not in Values
	all    []string
}

// Shown returns the fields that have a value, by name, without those that say nothing to a person.
func (a action) Shown() (fields []selected) {
	for _, name := range slices.Sorted(maps.Keys(a.Fields)) {
		all := given(a.Fields[name])
		if len(all) == 0 || name == "kind" {
			continue
		}
		n := min(len(all), shownValues)
		fields = append(fields, selected{Name: name, Values: all[:n], More: len(all) - n, all: all})
	}
	return fields
}

// From returns the path of the page that has the form of the action.
func (a action) From() string {
	switch a.Kind {
	case kindPause, kindResume:
		return "/delays"
	}
	return "/payments"
}

// Effect returns what an action of a kind leads to, beyond its numbers; empty: nothing else.
func (p page) Effect(kind string) string {
	if key := "action." + kind + "_effect"; texts()[key] != nil {
		return p.T(key)
	}
	return ""
}
