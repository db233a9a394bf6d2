// Package intake schedules orders from change records of Debezium, Canal or Maxwell. They write one to a topic when a row of the
// shop's table of orders is inserted or updated. The checkout needs no change.
//
// Create an Intake with New and call Run. It reads the topic in a consumer group of its own. For each row that is
// unpaid by the mapping it appends the record that a producer would have sent, to the delay topic that fits.
//
//	intake.go     options and lifecycle
//	change.go     the formats: from a change record to rows
//	row.go        the values of a row: texts and times
//	decide.go     which rows are scheduled
//	handler.go    the records of one partition
//	metrics.go    rows by what became of them
//	room.go       the role intake
//
// A row is scheduled at least once, and the offset is committed after the ack of all rows of its record. Records of
// one order keep their order. A record that cannot be read becomes a dead letter. Scheduling an order again is harmless.
// A record says only that an order may be due: the close decides by the database.
package intake

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/partition"
	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/store/mapping"
)

// Stage is the name of this part in dead letters, logs and metrics.
const Stage = "intake"

// DefaultLeaveOverdue is longer than any restart.
const DefaultLeaveOverdue = 2 * time.Hour

// Options configure an Intake. Log, Group, Topic, Format, Orders, Current, Now, CloseTopic and DeadLetterTopic are required.
type Options struct {
	Log             partition.Log
	Group           string
	Topic           string // of the change records
	Format          Format
	Orders          *mapping.Mapping
	Zone            *time.Location            // of texts without a zone in columns that need none in the mapping, as Canal writes a TIMESTAMP; default UTC
	Current         func() orderclose.Buckets // the buckets that records are put into now
	Delays          func() orderclose.Delays  // the delays now, for due times by rule; required with Mapping.ByRule
	CloseTopic      string                    // for orders that are due already
	DeadLetterTopic string
	// LeaveOverdue is how long an order may be overdue to be scheduled. Sweeps find the others: an old topic that is
	// read from its beginning must not close each of its orders again. Default: DefaultLeaveOverdue.
	LeaveOverdue time.Duration
	Now          func() time.Time // the clock that selects the bucket
	// OnHang is called with the reason when a loop hangs and cannot be stopped. The process should
	// then exit and be restarted by its supervisor. Default: panic.
	OnHang     func(why string)
	Logger     *slog.Logger          // default: warnings and errors, to slog.Default
	Registerer prometheus.Registerer // gets the metrics (orderclose_…); default: no metrics
}

// Intake schedules orders. Create it with New.
type Intake struct {
	o       Options
	reader  rowReader
	metrics *intakeMetrics
	stage   partition.Stage
}

// New returns an Intake, or an error if the mapping or the format is not one that it can read.
func New(o Options) (*Intake, error) {
	o.LeaveOverdue = cmp.Or(o.LeaveOverdue, DefaultLeaveOverdue)
	o.Logger = retry.LimitLogs(o.Logger)
	r, err := newRowReader(o)
	if err != nil {
		return nil, fmt.Errorf("intake: %w", err)
	}
	m, err := newMetrics(o.Registerer)
	if err != nil {
		return nil, fmt.Errorf("intake: %w", err)
	}
	i := &Intake{o: o, reader: r, metrics: m}
	i.stage = partition.Stage{ // without a control topic: before the first start the topic has lost old records, which is no loss
		Name: Stage, Log: o.Log, DeadLetterTopic: o.DeadLetterTopic, Loss: "the topic has lost change records: the next sweep closes their orders",
		Metrics: m.Metrics, OnHang: o.OnHang, Logger: o.Logger,
	}
	return i, nil
}

// Run schedules orders until ctx ends. It returns when the appends in flight have ended, within 2 s, what they acked
// is committed, and the group is left. It returns an error only if the group could not be consumed.
func (i *Intake) Run(ctx context.Context) error {
	return i.stage.Consume(ctx, i.o.Group, i.o.Topic, i.newHandler)
}
