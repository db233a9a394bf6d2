package console

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/orderclose/orderclose/internal/console/access"
)

const (
	planLifetime = 10 * time.Minute // from the end of the planning until the plan can no longer be confirmed
	keepPlans    = 24 * time.Hour   // how long the result of a plan can be looked at
	maxPlans     = 200              // the number of plans that are kept
	maxBusy      = 4                // the number of plans that are made or carried out at once
	maxPausing   = 8                // the same for a pause and its end, which must not wait for long plans
)

// planState is how far a plan is.
type planState string

const (
	planning planState = "planning" // it is being made
	planned  planState = "planned"  // it waits for its confirmation
	nothing  planState = "nothing"  // it would change nothing
	running  planState = "running"  // it is being carried out
	done     planState = "done"
	failed   planState = "failed" // making it, or carrying it out, failed
	expired  planState = "expired"
)

// progress is called with how many steps of how many are done.
type progress func(done, total int64)

// prepared is what a planner found out: what a plan would change, and how to carry it out.
type prepared struct {
	summary any                                                                    // in JSON, and for the template of the kind
	nothing bool                                                                   // there is nothing to do
	planned int64                                                                  // see plan.Planned
	run     func(context.Context, progress) (result any, handled int64, err error) // see plan.Handled
}

// planner finds out what a plan would change, and changes nothing.
type planner func(context.Context, progress) (prepared, error)

// plan is something that a person may confirm. Its fields are those of the API. A plan is a copy:
// plans.get returns the present one.
type plan struct {
	ID      string     `json:"id"`
	Kind    string     `json:"kind"`
	Who     string     `json:"who"`
	State   planState  `json:"state"`
	Made    time.Time  `json:"made_at"`
	Expires time.Time  `json:"expires_at,omitzero"` // of a plan that waits for its confirmation
	Began   time.Time  `json:"began_at,omitzero"`   // when it was confirmed
	Ended   time.Time  `json:"ended_at,omitzero"`   // when it was done, or failed
	Planned int64      `json:"planned"`             // dead letters, records or orders that it is about; 0: it counts none
	Handled int64      `json:"handled"`             // of them, when it has ended
	Done    int64      `json:"done"`                // steps of the planning, or of carrying it out
	Total   int64      `json:"total"`
	Summary any        `json:"plan,omitempty"`
	Result  any        `json:"result,omitempty"` // also of a plan that failed halfway
	Error   string     `json:"error,omitempty"`
	Fields  url.Values `json:"-"` // that it was made from

	by    access.Identity // who made it
	ready prepared
}

// Busy reports whether the plan changes without a person.
func (p plan) Busy() bool { return p.State == planning || p.State == running }

// Errors of plans.
var (
	errNoPlan       = errors.New("there is no such plan: it is older than a day, or the console was started again since")
	errNotPlanned   = errors.New("the plan does not wait for a confirmation")
	errPlanExpired  = errors.New("the plan has expired: make it again")
	errNotYourPlan  = errors.New("somebody else made the plan: make one of your own")
	errPlansAreBusy = fmt.Errorf("%d plans are being made or carried out: wait until one has ended", maxBusy)
)

// plans makes plans and carries them out, each in a goroutine that ends with ctx.
type plans struct {
	ctx     context.Context
	now     func() time.Time
	audit   func(plan) // called when a confirmed plan begins, and when it is done or failed
	mu      sync.Mutex
	byID    map[string]*plan
	running sync.WaitGroup
}

func (s *plans) add(kind string, by access.Identity, fields url.Values, make planner) (plan, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removeOld()
	if s.full(kind) {
		return plan{}, errPlansAreBusy
	}
	p := &plan{ID: rand.Text(), Kind: kind, Who: by.Name, by: by, State: planning, Made: s.now().UTC(), Fields: fields}
	s.byID[p.ID] = p
	s.running.Go(func() {
		ready, err := make(s.ctx, s.progress(p))
		s.change(p, func() {
			p.Summary, p.Planned, p.ready, p.Done, p.Total = ready.summary, ready.planned, ready, 0, 0
			switch {
			case err != nil:
				p.State, p.Error = failed, err.Error()
			case ready.nothing:
				p.State = nothing
			default:
				p.State, p.Expires = planned, s.now().UTC().Add(planLifetime)
			}
		})
	})
	return *p, nil
}

// confirm begins to carry out a plan of by.
func (s *plans) confirm(id string, by access.Identity) (plan, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, ok := s.byID[id]
	switch {
	case !ok:
		return plan{}, errNoPlan
	case p.Who != by.Name: //mutant:other-confirms-plan
		return s.at(p), errNotYourPlan
	case s.at(p).State == expired:
		return s.at(p), errPlanExpired
	case p.State != planned:
		return s.at(p), errNotPlanned
	case s.full(p.Kind):
		return s.at(p), errPlansAreBusy
	}
	p.State, p.Began = running, s.now().UTC()
	s.audit(*p)
	s.running.Go(func() {
		result, handled, err := p.ready.run(s.ctx, s.progress(p))
		var ended plan
		s.change(p, func() {
			p.State, p.Result, p.Handled, p.Ended = done, result, handled, s.now().UTC()
			if err != nil {
				p.State, p.Error = failed, err.Error()
			}
			ended = *p
		})
		s.audit(ended)
	})
	return *p, nil
}

// all returns all plans as they are now, the newest first.
func (s *plans) all() []plan {
	all := []plan{}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.byID {
		all = append(all, s.at(p))
	}
	slices.SortFunc(all, func(a, b plan) int { return b.Made.Compare(a.Made) })
	return all
}

func (s *plans) get(id string) (plan, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, ok := s.byID[id]
	if !ok {
		return plan{}, errNoPlan
	}
	return s.at(p), nil
}

// at returns a copy, expired if its time is over.
func (s *plans) at(p *plan) plan {
	now := *p
	if p.State == planned && !s.now().Before(p.Expires) { //mutant:plan-never-expires
		now.State = expired
	}
	return now
}

func (s *plans) progress(p *plan) progress {
	return func(done, total int64) { s.change(p, func() { p.Done, p.Total = done, total }) }
}

func (s *plans) change(p *plan, f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// full reports whether a plan of this kind has to wait for those that are being made or carried out.
func (s *plans) full(kind string) bool {
	left := maxBusy
	if kind == kindPause || kind == kindResume {
		left = maxPausing
	}
	for _, p := range s.byID {
		if p.Busy() {
			left--
		}
	}
	return left <= 0
}

func (s *plans) removeOld() {
	byAge := slices.SortedFunc(maps.Values(s.byID), func(a, b *plan) int { return a.Made.Compare(b.Made) })
	for _, p := range byAge {
		if !p.Busy() && (s.now().Sub(p.Made) > keepPlans || len(s.byID) >= maxPlans) {
			delete(s.byID, p.ID)
		}
	}
}
