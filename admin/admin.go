// Package admin lets a program of yours do what an operator does with commands and the console.
//
//	app, err := pipeline.New(pipeline.Options{TopicsFile: "topics.yaml", Servers: servers})
//	…
//	a, err := admin.New(app, "ada@shop")
//	…
//	ended, err := a.Pause(ctx, admin.PauseRequest{Category: "virtual", For: time.Hour, Reason: "the provider is down"})
//
// Each call asks the servers of the App, and needs no running part of the pipeline: the App need not run. It does what the command of the same
// name does, by the same code. A call whose name begins with Plan changes nothing: show what it returns to a person, and then make the
// call that carries it out.
//
//	admin.go         Admin, New and As, the errors that many calls have, and the audit log
//	pauses.go        Pauses, PlanPause, Pause, Resume
//	payments.go      LatePayments, LatePayment, ResolveLate
//	orders.go        Verdicts, History, Overdue
//	deadletters.go   DeadLetters, DeadLetter, PlanRedrive, Redrive, PlanDiscard, Discard
//	replay.go        PlanReplay, Replay
//
// The program decides who may call what. The audit log has each call that has changed something, with the name of the operator.
// Histories, plans of replays and dead letters, and what became of them, have the JSON that the commands print with -o json.
package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/orderclose/orderclose/internal/health"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/text"
	"github.com/orderclose/orderclose/pipeline"
)

// Admin makes the calls. It is safe for concurrent use.
type Admin struct {
	p         ops.Pipeline
	histories ops.Histories
	operator  string
	logger    *slog.Logger
}

// New returns an Admin of the servers of an App, whether that runs or not, or an error if it has none. operator is who acts, for the audit
// log and late payments: such as a user's name, at most 255 characters; see Admin.As. Close the App after the last call.
func New(app *pipeline.App, operator string) (*Admin, error) {
	h := app.Host()
	servers, cfg := h.Connections, h.Config()
	if servers.Kafka == nil && servers.Store == nil {
		return nil, errors.New("admin: the App has neither a Kafka cluster nor a database")
	}
	a := &Admin{ops.Pipeline{Config: cfg, Kafka: servers.Kafka, Store: servers.Store, Redis: servers.Redis,
		OwnStore: h.OwnStore}, ops.NewHistories(), "", h.Logger}
	return a.As(operator)
}

// As returns an Admin for another operator, such as the user of one request, or an error if the name is empty. It costs nothing.
func (a *Admin) As(operator string) (*Admin, error) {
	as := *a
	if as.operator = text.OneLine(operator, 255); strings.TrimSpace(as.operator) == "" {
		return nil, errors.New("admin: the operator is empty: say who acts, for the audit log")
	}
	return &as, nil
}

// Errors of many calls. If the database failed, an error wraps orderclose.ErrUnavailable.
var (
	// ErrNoKafka and ErrNoDatabase say that a call needs a server that the App does not have.
	ErrNoKafka    = health.ErrNoKafka
	ErrNoDatabase = health.ErrNoDatabase
	// ErrClosedElsewhere says that a service or a Store of the program closes the orders, so that the database does not decide.
	ErrClosedElsewhere = ops.ErrClosedElsewhere
	// ErrNotFound says that there is no such order, late payment or dead letter.
	ErrNotFound = errors.New("not found")
	// ErrBusy says that two other searches for orders run, and that none of them has ended within 5 s.
	ErrBusy = ops.ErrBusy
	// ErrNoCategory says that a call selects a category, but topics.yaml maps the orders (key orders) without their category
	// (orders.category). If a service or a Store of the program closes the orders, the category is that of their records.
	ErrNoCategory = store.ErrNoCategory
)

// failed wraps ErrNotFound beside an error that says the same of one thing.
func failed(err error) error {
	if errors.Is(err, store.ErrNoLatePayment) {
		return fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	return err
}

// acted writes to the audit log what a call has done, also after the end of ctx. A call that has changed nothing is not written. acted
// returns the error of the call.
func (a *Admin) acted(ctx context.Context, changed bool, err error, call string, with ...any) error {
	if !changed {
		return failed(err)
	}
	action, result := "admin."+call, "done"
	if len(with) > 0 {
		action += fmt.Sprintf(" %+v", with)
	}
	if err != nil {
		result = err.Error()
	}
	if kept := a.p.KeepAction(context.WithoutCancel(ctx), a.operator, action, result); kept != nil {
		a.logger.Error("writing an action to the audit log failed", "who", a.operator, "action", action, "err", kept)
	}
	return failed(err)
}
