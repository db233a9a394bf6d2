package console

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/orderclose/orderclose/internal/console/access"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/ops/deadletters"
)

// servePlan shows a plan: what it would change, its progress, or its result.
func (c *Console) servePlan(w http.ResponseWriter, r *http.Request) {
	p, ok := c.planPage(r, r.PathValue("id"))
	if !ok {
		c.renderProblem(w, r, http.StatusNotFound, "error.no_plan", "")
		return
	}
	c.render(w, r, http.StatusOK, p)
}

func (c *Console) planPage(r *http.Request, id string) (page, bool) {
	p, err := c.plans.get(id)
	if err != nil {
		return page{}, false
	}
	shown := c.newPage(r, "plan", p)
	if p.Busy() {
		shown.Live = planInterval
	}
	return shown, true
}

func (c *Console) serveAddPlan(w http.ResponseWriter, r *http.Request) {
	kind, fields := r.PostFormValue("kind"), inUTC(r.PostForm, zoneOf(r))
	p, err := c.addPlan(r, kind, fields)
	switch {
	case err != nil && kind == kindPause:
		c.renderDelays(w, r, planStatus(err), delaysData{Form: fields, Problem: err})
		return
	case err != nil:
		c.renderProblem(w, r, planStatus(err), "error.no_plan_made", err.Error())
		return
	}
	http.Redirect(w, r, c.o.Settings.BasePath+"/plans/"+p.ID, http.StatusSeeOther)
}

func (c *Console) serveConfirmPlan(w http.ResponseWriter, r *http.Request) {
	if _, err := c.plans.confirm(r.PathValue("id"), access.From(r.Context())); err != nil && !errors.Is(err, errPlanExpired) && !errors.Is(err, errNotPlanned) {
		c.renderProblem(w, r, planStatus(err), "error.no_plan_made", err.Error())
		return
	}
	http.Redirect(w, r, c.o.Settings.BasePath+"/plans/"+r.PathValue("id"), http.StatusSeeOther)
}

// planStatus returns the HTTP status for an error of a plan.
func planStatus(err error) int {
	switch {
	case errors.Is(err, errNoPlan):
		return http.StatusNotFound
	case errors.Is(err, errNotYourPlan):
		return http.StatusForbidden
	case errors.Is(err, errPlanExpired), errors.Is(err, errNotPlanned):
		return http.StatusConflict
	case errors.Is(err, errPlansAreBusy), errors.Is(err, ops.ErrNoKafka):
		return http.StatusServiceUnavailable
	}
	return http.StatusBadRequest
}

func (c *Console) addPlan(r *http.Request, kind string, fields url.Values) (plan, error) {
	make, err := c.plannerOf(kind, access.From(r.Context()).Name, fields)
	if err != nil {
		return plan{}, err
	}
	return c.plans.add(kind, access.From(r.Context()), fields, make)
}

// audit writes the line of an action that begins, with the result running, or that has ended. The audit log has the second.
func (c *Console) audit(p plan) {
	ops.AskStatus.Forget(c.asks)
	selected := url.Values{}
	for _, field := range p.selected() {
		selected[field.Name] = field.Values
	}
	fields, result := fmt.Sprintf("%.500s", selected.Encode()), strings.TrimSuffix(string(p.State)+": "+p.Error, ": ")
	c.o.Logger.Info("console action", "who", p.by.Name, "role", p.by.Role, "address", p.by.Address, "action", p.Kind, "plan", p.ID,
		"selected", fields, "planned", p.Planned, "handled", p.Handled, "result", result)
	if p.State == done || p.State == failed {
		if err := c.pipeline().KeepAction(c.ctx, p.by.Name, p.Kind+" "+fields, fmt.Sprintf("%s, %d of %d", result, p.Handled, p.Planned)); err != nil {
			c.o.Logger.Error("writing an action of the console to the audit log failed", "plan", p.ID, "err", err)
		}
	}
}

// planJSON returns what an endpoint answers: the plan with the status, or the error with its own status.
func planJSON(p plan, err error, status int) (int, any, error) {
	if err != nil {
		return planStatus(err), nil, err
	}
	return status, p, nil
}

// Effect returns what a plan of a kind leads to, beyond its numbers; empty: nothing else.
func (p page) Effect(kind string) string {
	if key := "plan." + kind + "_effect"; texts()[key] != nil {
		return p.T(key)
	}
	return ""
}

// shownValues is how many values of a field the page of a plan shows.
const shownValues = 20

// ByOthers returns how many dead letters of a done plan were handled by others since it was made.
func (p page) ByOthers() int64 {
	made, _ := p.Data.(plan)
	result, ok := made.Result.(deadletters.Result)
	if made.State != done || !ok {
		return 0
	}
	return max(0, made.Planned-made.Handled-int64(result.Refused))
}

// Selection returns the fields that a plan was made from, by name. That of a pause is its summary.
func (p page) Selection(made plan) []selected {
	if p.Name == "plan" && (made.Kind == kindPause || made.Kind == kindResume) {
		return nil
	}
	fields := made.selected()
	for i, f := range fields {
		if n := len(f.Values) - shownValues; n > 0 {
			fields[i].Values, fields[i].More = f.Values[:shownValues], n
		}
	}
	return fields
}

// selected is a field that a plan was made from.
type selected struct {
	Name   string
	Values []string
	More   int // values that are not shown
}

// selected returns the fields that have a value, by name.
func (p plan) selected() (fields []selected) {
	for _, name := range slices.Sorted(maps.Keys(p.Fields)) {
		if values := given(p.Fields[name]); len(values) > 0 && name != "kind" {
			fields = append(fields, selected{Name: name, Values: values})
		}
	}
	return fields
}
