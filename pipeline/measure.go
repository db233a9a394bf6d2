package pipeline

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/orderclose/orderclose/compensator"
	"github.com/orderclose/orderclose/internal/backlog"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/kafka/reads"
	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/store"
)

const (
	// recordsInterval is the interval between a compensator's checks of the waiting records.
	recordsInterval = time.Minute
	// recordsTimeout bounds one check, and recordsRound each round of its requests. A partition that has not answered by then is unknown.
	recordsTimeout, recordsRound = 30 * time.Second, 10 * time.Second
)

// watchRecords checks each minute which records wait and which are overdue, until ctx ends. Relays and closers report how far behind they are by
// their own state. This check also finds records that a relay or closer has lost track of.
func (a *App) watchRecords(ctx context.Context) {
	for retry.Sleep(ctx, recordsInterval) {
		a.checkRecords(ctx)
	}
}

func (a *App) checkRecords(ctx context.Context) {
	looking, cancel := context.WithTimeout(ctx, recordsTimeout)
	defer cancel()
	r := a.waitingRecords(looking)
	if ctx.Err() != nil {
		return
	}
	a.metrics.Waiting(r)
	if worst, found := r.Worst(backlog.OverdueLimit); found {
		a.o.Logger.Error("records are overdue: run orderclose status", "topic", worst.Topic.Topic, "partition", worst.Partition.Partition,
			"offset", worst.Record().Offset, "overdue", time.Duration(worst.Partition.Overdue*float64(time.Second)).Round(time.Second), "partitions", worst.Count)
	}
}

// waitingRecords returns the state of the topics in which records of orders wait.
func (a *App) waitingRecords(ctx context.Context) backlog.Status {
	targets := backlog.Topics(ctx, a.conns.Kafka, a.config())
	return backlog.ReadStatus(ctx, reads.Log{Cluster: a.conns.Kafka}, targets, recordsRound, a.clock.Time)
}

// writeProbeInterval is the pause between two questions of a closer or compensator whether the database takes writes.
const writeProbeInterval = 15 * time.Second

// writeProbeLatest is the longest time until the writes of a close are tried again, if this process has closed no order. A try is some
// fifteen statements.
const writeProbeLatest = 2 * time.Minute

// tablesInterval is the pause between two questions whether the tables still fit the mapping: somebody may have altered one, or there is one for a new
// month. A question is five statements for each table.
const tablesInterval = 5 * time.Minute

// writesReason is the name of refused writes in /-/ready.
const writesReason = "database writes"

// closeWrites is what watchWrites asks a store.
type closeWrites interface {
	CheckTables(ctx context.Context) error
	ClosedWithin(last time.Duration) bool
	NotReadOnly(ctx context.Context) error
	Writable(ctx context.Context) error
	Refuses() error
}

// watchWrites asks, until ctx ends, whether the writes of a close in the database succeed. A database may answer
// every read while every close fails, because it is read-only or its tables are locked.
func (a *App) watchWrites(ctx context.Context) {
	failed := a.metrics.writesFailing.WithLabelValues() // 0 also before the first try: alerts see by the series where orders are closed
	if a.conns.Store.Clock() != nil {                   // the database is in this process
		return
	}
	a.ready.hints.addFunc("tables of months", func() string {
		if aside := a.conns.Store.SetAside(true); aside != nil {
			return aside.Error()
		}
		return ""
	})
	probeWrites(ctx, a.o.Logger, tryWrites(a.conns.Store), func(failing time.Duration, err error) {
		failed.Set(failing.Seconds())
		if err == nil {
			a.ready.waiting.remove(writesReason)
			return
		}
		a.ready.waiting.add(writesReason, err.Error())
	})
}

// tryWrites returns a try for probeWrites. Each try asks whether the server is read-only. A try also makes the writes of a close if the last try has
// failed, or if nothing was closed for two minutes. A try also asks whether the tables fit the mapping: every five minutes, and while the Store refuses closes.
// The Store closes nothing on tables that do not fit, and nothing on a read-only server.
func tryWrites(db closeWrites) func(ctx context.Context) error {
	var written, asked time.Time // when the writes were tried with success, and when the tables were asked for; zero: ask now
	return func(ctx context.Context) error {
		began := time.Now()
		if db.Refuses() != nil || began.Sub(asked) >= tablesInterval {
			limited, cancel := context.WithTimeout(ctx, checkTimeout)
			_ = db.CheckTables(limited) // if they are not read, the Store keeps the last answer
			cancel()
			asked = began
		}
		if db.ClosedWithin(time.Minute) { // its writes have succeeded
			written = began
		}
		err := cmp.Or(db.NotReadOnly(ctx), db.Refuses())
		if err == nil && began.Sub(written) >= writeProbeLatest {
			err, written = db.Writable(ctx), began
		}
		if err != nil {
			written = time.Time{}
		}
		return err
	}
}

// closesInDatabase reports whether orders are closed in the database, rather than by Options.Store or a service.
func (a *App) closesInDatabase() bool {
	return a.conns.Store != nil && a.o.Store == nil && a.o.Config.Closer.Kind != config.KindHTTP
}

// probeWrites calls try, writeProbeInterval after the last try has ended, until ctx ends. So tries do not pile up while the
// database hangs. It reports since when they have failed, and the last error.
func probeWrites(ctx context.Context, logger *slog.Logger, try func(context.Context) error, report func(failing time.Duration, err error)) {
	var since time.Time // the first failed try; zero: the last one succeeded
	for retry.Sleep(ctx, writeProbeInterval) {
		err, failing := try(ctx), time.Duration(0)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil && !since.IsZero():
			logger.Info("orders can be closed in the database again", "after", time.Since(since).Round(time.Second))
			since = time.Time{}
		case err != nil && since.IsZero():
			logger.Error("no order can be closed in the database", "err", err)
			since = time.Now()
		case err != nil:
			failing = time.Since(since)
		}
		report(failing, err)
	}
}

const (
	countAtRest   = 30 * time.Second // between two counts while no order is overdue
	countInterval = 5 * time.Second  // between two counts while some are
	lateInterval  = time.Minute      // between two counts of payments that came late
	countTimeout  = 30 * time.Second // of one count
	countShare    = 10               // a count that took long is followed by a pause of this many times its duration
	countRarest   = 45 * time.Second // the longest such pause: an alert compares the number with that of a minute ago
	countHolds    = time.Minute      // how long a count stands for those that failed since
)

// countOrders returns the task that counts the overdue orders and the late payments in the database. listed returns the categories of topics.yaml.
// overdue and late get what was counted. The zero value, and nil, say that it is not known, or that another process counts.
func countOrders(db *store.Store, listed func() map[string]time.Duration, overdue func(backlog.OverdueOrders), late func(*store.LateSummary),
	logger *slog.Logger) compensator.Task {
	var payments *store.LateSummary // nil: not known
	var paymentsAt time.Time
	count := func(ctx context.Context) (backlog.OverdueOrders, error) {
		list, err := backlog.ListOverdue(ctx, db, compensator.Grace) // first: a count of payments that hangs uses up the time
		if err == nil && (payments == nil || time.Since(paymentsAt) >= lateInterval) {
			if sum, err := db.CountLate(ctx); err == nil {
				payments, paymentsAt = &sum, time.Now()
			} else {
				payments = nil
				logger.Warn("late payments cannot be counted, will retry", "err", err)
			}
		}
		return list.Count(listed()), err
	}
	report := func(o backlog.OverdueOrders) {
		if o.At.IsZero() {
			payments = nil
		}
		overdue(o)
		late(payments)
	}
	c := &orderCounter{count: count, report: report, logger: logger}
	return compensator.Task{Do: c.once, Idle: c.idle}
}

// orderCounter counts overdue orders.
type orderCounter struct {
	count   func(context.Context) (backlog.OverdueOrders, error)
	report  func(backlog.OverdueOrders) // the zero value: they are not known, or another process counts
	logger  *slog.Logger
	counted time.Time // when a count last succeeded
}

// once counts once, and returns the time until the next count. After a failed count the last one holds for a minute.
func (c *orderCounter) once(ctx context.Context) (next time.Duration) {
	limited, cancel := context.WithTimeout(ctx, countTimeout)
	defer cancel()
	began := time.Now()
	o, err := c.count(limited)
	rest := min(countShare*time.Since(began), countRarest)
	switch {
	case ctx.Err() != nil:
	case err == nil:
		c.counted = time.Now()
		if c.report(o); o.Orders+o.Paused > 0 {
			return max(countInterval, rest)
		}
	default:
		c.logger.Warn("overdue orders cannot be counted, will retry", "err", err)
		if time.Since(c.counted) > countHolds {
			c.idle()
		}
	}
	return max(countAtRest, rest)
}

func (c *orderCounter) idle() { c.report(backlog.OverdueOrders{}) }
