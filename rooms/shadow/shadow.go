// Package shadow decides what closes would do, and closes nothing. A team runs it beside the job
// that closes its orders today, and compares the two (Report).
//
// Create a Shadow with New and call Run. It reads the close topic in a consumer group of its own,
// asks the database about each order, and appends a verdict to the shadow topic. A record whose
// order is not due yet waits in memory until the order is due. An offset is committed after the
// verdict is acked.
//
//	shadow.go      types, options and lifecycle
//	handler.go     the records of one partition
//	verdict.go     the record of a verdict
//	report.go      one report
//	compare.go     how one order compares (pure)
//	verdicts.go    a verdict of each order in 24 bytes
//	command.go     orderclose shadow report
//	room.go        the room: its role, key, topic and command
//
// A Shadow changes nothing in the database and locks nothing. It writes to no other topic: no
// retries and no dead letters. If the database or the topic does not answer,
// it waits. Each record gets a verdict, except those that cannot be read: the log names them. After
// a crash some orders get a second verdict.
package shadow

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/metrics"
	"github.com/orderclose/orderclose/internal/partition"
)

// Stage is the name of this part in logs and metrics.
const Stage = "shadow"

// Previewer says what a close would do. store.Store implements it.
type Previewer interface {
	// PreviewClose returns the outcome that a close of each request would have now, and changes
	// nothing. With an empty path no pause counts. The error wraps orderclose.ErrUnavailable if no
	// order caused it.
	PreviewClose(ctx context.Context, path orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error)
}

// Options configure a Shadow. Log, Store, Group, CloseTopic and Topic are required.
type Options struct {
	Log        partition.Log
	Store      Previewer
	Group      string // its own: not the group of closers
	CloseTopic string
	Topic      string // receives the verdicts
	// OnHang is called with the reason when a loop hangs and cannot be stopped. The process should
	// then exit and be restarted by its supervisor. Default: panic.
	OnHang     func(why string)
	Logger     *slog.Logger          // default: warnings and errors, to slog.Default
	Registerer prometheus.Registerer // gets the metrics (orderclose_…); default: no metrics
}

// Shadow appends verdicts. Create it with New.
type Shadow struct {
	o      Options
	counts *prometheus.CounterVec // verdicts by kind
	stage  partition.Stage
}

// New returns a Shadow, or an error if an option is missing.
func New(o Options) (*Shadow, error) {
	if o.Log == nil || o.Store == nil || o.Group == "" || o.CloseTopic == "" || o.Topic == "" {
		return nil, errors.New("shadow: Options need Log, Store, Group, CloseTopic and Topic")
	}
	partition.SetDefaults(Stage, &o.OnHang, &o.Logger)
	f := metrics.With(o.Registerer)
	s := &Shadow{o: o, counts: f.CounterVec("shadow_verdicts_total",
		"Verdicts of a shadow run: what a close would have done. A record that is read again counts again.", "verdict")}
	for _, v := range []orderclose.Verdict{
		orderclose.Closed, orderclose.AlreadyPaid, orderclose.AlreadyClosed, orderclose.NotDue, orderclose.Excluded, orderclose.NotFound, orderclose.Failed,
	} {
		s.counts.WithLabelValues(string(v)) // a series must exist at 0, or its first increase is not seen
	}
	s.stage = partition.Stage{ // without a dead-letter topic and a control topic
		Name: Stage, Log: o.Log, Loss: "the log has lost records: their orders get no verdict",
		Metrics: partition.NewMetrics(f, Stage), OnHang: o.OnHang, Logger: o.Logger,
	}
	if err := f.Err(); err != nil {
		return nil, fmt.Errorf("shadow: %w", err)
	}
	return s, nil
}

// Run appends verdicts until ctx ends. It returns when the appends in flight have ended, within
// 2 s, what they acked is committed, and the group is left. It returns an error only if the group
// could not be consumed.
func (s *Shadow) Run(ctx context.Context) error {
	return s.stage.Consume(ctx, s.o.Group, s.o.CloseTopic, s.newHandler)
}

// preview asks the database about the orders of a batch. If an order makes the question fail, it
// asks about each order alone, and an order that cannot be read has failed. Otherwise that order
// would block its partition.
func (s *Shadow) preview(ctx context.Context, batch []*entry) ([]orderclose.Outcome, error) {
	requests := make([]orderclose.CloseRequest, len(batch))
	for i, e := range batch {
		requests[i] = e.request
	}
	outcomes, err := s.o.Store.PreviewClose(ctx, "", requests)
	if err == nil || errors.Is(err, orderclose.ErrUnavailable) {
		return outcomes, err
	}
	outcomes = nil
	for i, r := range requests {
		one, err := s.o.Store.PreviewClose(ctx, "", requests[i:i+1])
		switch {
		case errors.Is(err, orderclose.ErrUnavailable):
			return nil, err
		case err != nil:
			s.o.Logger.Error("the database cannot read an order", "order", r.OrderID, "err", err)
			one = []orderclose.Outcome{{OrderID: r.OrderID, Verdict: orderclose.Failed, At: time.Now()}}
		}
		outcomes = append(outcomes, one...)
	}
	return outcomes, nil
}
