package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/orderclose/orderclose/compensator"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/ops/deadletters"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/wire"
)

// The kinds of plans.
const (
	kindRedrive = "redrive"
	kindDiscard = "discard"
	kindSweep   = "sweep" // its plan is a dry run
	kindPause   = "pause"
	kindResume  = "resume"

	// What became of the money of a late payment.
	kindRefunded = string(store.Refunded)
	kindReopened = string(store.Reopened)
)

// maxValues is how many values a field of a plan may have, such as positions of dead letters.
const maxValues = 1000

// plannerOf returns the planner of a kind for somebody, or an error that names each wrong field.
func (c *Console) plannerOf(kind, who string, fields url.Values) (planner, error) {
	known := map[string]func(url.Values) (planner, error){
		kindRedrive:  func(f url.Values) (planner, error) { return c.planResolution(f, wire.Redriven) },
		kindDiscard:  func(f url.Values) (planner, error) { return c.planResolution(f, wire.Discarded) },
		kindRefunded: func(f url.Values) (planner, error) { return c.planLate(f, store.Refunded, who) },
		kindReopened: func(f url.Values) (planner, error) { return c.planLate(f, store.Reopened, who) },
		kindSweep:    c.planSweep, kindPause: c.planPause, kindResume: c.planResume,
	}
	make, ok := known[kind]
	if !ok {
		return nil, fmt.Errorf("cannot be planned: kind is %q, want redrive, discard, sweep, pause, resume, refunded or reopened", kind)
	}
	for name, values := range fields {
		if len(values) > maxValues {
			return nil, fmt.Errorf("cannot be planned: %.40q has %d values, want at most %d: select by another field, or plan in parts", name, len(values), maxValues)
		}
	}
	p, err := make(fields)
	if err != nil {
		return nil, fmt.Errorf("cannot be planned: %w", err)
	}
	return p, nil
}

// planResolution plans to redrive or to discard dead letters. The fields cause, stage, topic, order and
// since select them. The field at names one by its position, and may be repeated.
func (c *Console) planResolution(fields url.Values, how wire.ResolutionKind) (planner, error) {
	if c.o.Kafka == nil {
		return nil, ops.ErrNoKafka
	}
	f := deadletters.Filter{Cause: fields.Get("cause"), Stage: fields.Get("stage"), Source: fields.Get("topic"), Order: fields.Get("order")}
	since, err := moment("since", fields.Get("since"))
	f.Since = since
	errs := []error{err}
	for _, at := range fields["at"] {
		position, err := deadletters.ParsePartitionOffset(at)
		f.Positions, errs = append(f.Positions, position), append(errs, err)
	}
	if how == wire.Discarded && !f.Selects() {
		errs = append(errs, errors.New("select dead letters: give at, cause, stage, topic, order or since"))
	}
	for _, name := range []string{f.Cause, f.Stage, f.Source} {
		if name == deadletters.Other {
			errs = append(errs, fmt.Errorf("%q stands for many causes, stages or topics: select dead letters by their positions", name))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return func(ctx context.Context, report progress) (prepared, error) {
		cfg := c.o.Config()
		log, err := c.o.Kafka.TopicID(ctx, cfg.Topics.DeadLetter)
		if err != nil {
			return prepared{}, err
		}
		topic := deadletters.Topic{Log: c.o.Kafka, Name: cfg.Topics.DeadLetter, Progress: report}
		o := deadletters.Options{Filter: f, How: how, Rules: c.pipeline().RedriveRules()}
		plan, err := topic.MakePlan(ctx, o)
		if err != nil {
			return prepared{}, err
		}
		o.Filter.Through = plan.Through
		return prepared{summary: plan, nothing: plan.Doable() == 0, planned: int64(plan.Doable()),
			run: func(ctx context.Context, report progress) (any, int64, error) {
				if now, err := c.o.Kafka.TopicID(ctx, plan.Topic); err != nil {
					return nil, 0, err
				} else if now != log {
					return nil, 0, fmt.Errorf("topic %s was deleted and recreated since: its dead letters are others", plan.Topic)
				}
				topic := deadletters.Topic{Log: c.o.Kafka, Name: plan.Topic}
				result, err := topic.Run(ctx, o, report)
				return result, int64(result.Done), err
			}}, nil
	}, nil
}

// planSweep plans a pass by hand: the plan is a dry run.
func (c *Console) planSweep(url.Values) (planner, error) {
	if c.o.Sweep == nil {
		return nil, errors.New("a pass by hand needs the database: set the variables that orderclose compensate needs")
	}
	return func(ctx context.Context, _ progress) (prepared, error) {
		found, err := c.o.Sweep(ctx, true, nil)
		if err != nil {
			return prepared{}, err
		}
		return prepared{summary: found, nothing: found.Found == 0, planned: int64(found.Found), run: func(ctx context.Context, report progress) (any, int64, error) {
			result, err := c.o.Sweep(ctx, false, func(r compensator.Report) { report(int64(r.Found), max(int64(found.Found), int64(r.Found))) })
			return result, int64(result.Closed), err
		}}, nil
	}, nil
}

// planLate plans to record what became of the money of a late payment: late is its id.
func (c *Console) planLate(fields url.Values, how store.LateResolution, who string) (planner, error) {
	if c.o.Store == nil {
		return nil, ops.ErrNoDatabase
	}
	id, err := strconv.ParseInt(fields.Get("late"), 10, 64)
	if err != nil {
		return nil, fmt.Errorf("late is %.40q, want the id of a late payment", fields.Get("late"))
	}
	return func(ctx context.Context, _ progress) (prepared, error) {
		p, err := c.o.Store.LatePayment(ctx, id)
		return prepared{summary: p, nothing: p.Resolution != "", planned: 1, run: func(ctx context.Context, _ progress) (any, int64, error) {
			defer c.late.Forget()
			defer ops.AskLate.Forget(c.asks)
			resolved, err := c.o.Store.ResolveLate(ctx, id, how, cmp.Or(who, "console"))
			if err != nil {
				return nil, 0, err
			}
			return resolved, 1, nil
		}}, err
	}, nil
}

// pausePlan is a plan to pause or to resume, and its result.
type pausePlan struct {
	Category string       `json:"category,omitempty"`
	For      string       `json:"for,omitempty"`
	Reason   string       `json:"reason,omitempty"`
	On       []wire.Pause `json:"on"`              // that are on now
	Ended    []wire.Pause `json:"ended,omitempty"` // by a resume, or earlier than they would end

	lasting time.Duration
	replace bool
}

// planPause plans to close no orders for a while: for, reason, and perhaps category. With replace it may end another
// pause earlier.
func (c *Console) planPause(fields url.Values) (planner, error) {
	lasting, err := ops.ParsePause(fields.Get("for"))
	p := pausePlan{For: config.FormatDuration(lasting), Reason: fields.Get("reason"), lasting: lasting, replace: fields.Get("replace") != ""}
	return c.planPauses(fields, p, func(ctx context.Context, kept *store.Store, p pausePlan) ([]wire.Pause, error) {
		return kept.Pause(ctx, p.Category, lasting, p.Reason, p.replace)
	}, err, ops.CheckReason(p.Reason), checkText("reason", p.Reason, maxReason))
}

// planResume plans to end pauses: perhaps category.
func (c *Console) planResume(fields url.Values) (planner, error) {
	return c.planPauses(fields, pausePlan{}, func(ctx context.Context, kept *store.Store, p pausePlan) ([]wire.Pause, error) {
		return kept.Resume(ctx, p.Category)
	})
}

// planPauses plans a change of pauses, which returns those that it has ended. wrong are errors of the fields, or nil.
func (c *Console) planPauses(fields url.Values, p pausePlan, change func(context.Context, *store.Store, pausePlan) ([]wire.Pause, error),
	wrong ...error) (planner, error) {
	p.Category = fields.Get("category")
	if err := errors.Join(errors.Join(wrong...), checkText("category", p.Category, maxCategory)); err != nil {
		return nil, err
	}
	kept, err := c.pipeline().PausesDatabase()
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, _ progress) (prepared, error) {
		if p.On, err = kept.Pauses(ctx); err != nil {
			return prepared{}, err
		}
		if p.For != "" { // a pause of a typo would pause nothing
			if err := c.pipeline().CheckCategories(ctx, p.Category); err != nil {
				return prepared{}, err
			}
			if p.Ended, err = wire.Shortened(p.On, p.Category, time.Now().Add(p.lasting), p.replace); err != nil {
				return prepared{}, err
			}
		}
		return prepared{summary: p, nothing: p.For == "" && len(p.On) == 0, run: func(ctx context.Context, _ progress) (any, int64, error) {
			after := p
			if after.Ended, err = change(ctx, kept, p); err != nil {
				return nil, 0, err
			}
			ops.AskPauses.Forget(c.asks)
			after.On, err = kept.Pauses(ctx)
			return after, 0, err
		}}, nil
	}, nil
}

// The longest category and the longest reason of a pause, in characters: those of the columns.
const maxCategory, maxReason = 255, 500

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
