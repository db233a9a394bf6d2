package clock

import (
	"context"
	"encoding/json"
	"time"

	"github.com/orderclose/orderclose/internal/wire"
)

const (
	// databaseSlack is the largest difference between the brokers' clock and the database's that Database ignores. Clocks that are
	// synchronised at all are much closer, and then the brokers' clock, which is measured exactly, is used as it is.
	databaseSlack = 500 * time.Millisecond
	// databaseTimeout bounds one question for the database's time.
	databaseTimeout = 2 * time.Second
	// databaseFresh is how old a probe may be. databaseMost is the largest difference that a process believes. databaseTold is a
	// smaller limit for probes of other processes which say that the database is behind. Each part of the pipeline can append a
	// probe, and a relay holds back its records as long as the database seems to be behind. Without a probe that counts, the
	// process uses the brokers' clock.
	databaseFresh = 5 * time.Minute
	databaseMost  = 24 * time.Hour
	databaseTold  = 5 * time.Minute
	// probesBack is how many records of the control topic are searched for the database's time: those of a minute of 50 relays and
	// closers, and more.
	probesBack = 500
)

// probe is the value of a probe record. Times are Unix milliseconds.
type probe struct {
	Local    int64 `json:"probe"`
	Database int64 `json:"database,omitempty"` // at the same moment; absent if the process knows no database
}

// askDatabase returns the database's time when the monotonic clock was 0; zero if it is not known. The answer counts as the time at its
// arrival: a clock that is believed to be slower than it is makes nothing early.
func (c *Clock) askDatabase(ctx context.Context, ask func(context.Context) (time.Time, error)) (start time.Time) {
	if ask == nil {
		return start
	}
	ctx, cancel := context.WithTimeout(ctx, databaseTimeout)
	defer cancel()
	if at, err := ask(ctx); err == nil { // the closer reports a database that does not answer
		start = at.Add(-c.local().mono)
	}
	return start
}

// probeOf returns the probe record for this moment. database is the answer of askDatabase.
func probeOf(sent reading, database time.Time) wire.Message {
	p := probe{Local: sent.wall.UnixMilli()}
	if !database.IsZero() {
		p.Database = database.Add(sent.mono).UnixMilli()
	}
	value, _ := json.Marshal(p) // two numbers
	return wire.Message{Value: value}
}

// learnDatabase sets DatabaseAhead: by the measurement of this process, or, if its database is unknown or does not answer, by the newest
// probes in the topic of processes whose database does. A relay need not reach the database. If the probes of others say that the
// database is behind by more than told, they do not count.
func (c *Clock) learnDatabase(ctx context.Context, log Log, topic string, own []time.Duration, told time.Duration) error {
	if len(own) > 0 {
		c.setDatabaseAhead(own, databaseMost)
		return nil
	}
	var all []time.Duration // oldest first
	err := log.Tail(ctx, topic, 0, probesBack, func(r *wire.RawRecord) {
		if ahead, ok := databaseAhead(r); ok && c.Broker().Sub(r.AppendedAt()) <= databaseFresh {
			all = append(all, ahead)
		}
	})
	if err == nil {
		c.setDatabaseAhead(all, told)
	}
	return err
}

// setDatabaseAhead takes the largest of the newest measurements. Each measurement is too small by the time that its append took, which
// may be seconds while a broker restarts. So a measurement that no other one confirms does not count. A measurement does not count
// either if it says that the database is behind by more than most. Older measurements do not count either, because a broker's clock may
// have been set since.
func (c *Clock) setDatabaseAhead(newest []time.Duration, most time.Duration) {
	if len(newest) == 0 { // no process that knows it has probed lately
		c.databaseAhead.Store(0)
		return
	}
	newest = newest[max(0, len(newest)-probesPerRound):]
	ahead := newest[len(newest)-1]
	if n := len(newest); n == probesPerRound && !near(ahead, newest[0]) && !near(ahead, newest[1]) && near(newest[0], newest[1]) {
		ahead = newest[1] // the append of the newest took long, or its clock was set: the next probe shows it
	}
	for _, other := range newest {
		if other > ahead && near(other, ahead) {
			ahead = other
		}
	}
	if ahead.Abs() < databaseSlack || ahead > databaseMost || ahead < -most {
		ahead = 0
	}
	c.databaseAhead.Store(int64(ahead))
}

// near reports whether two measurements differ by no more than round trips do.
func near(a, b time.Duration) bool { return (a - b).Abs() < probeSlow }

// databaseAhead returns by how much the database's clock was ahead of the broker's when the broker appended the probe. ok is false for
// any other record.
func databaseAhead(r *wire.RawRecord) (ahead time.Duration, ok bool) {
	var p probe
	m, err := r.Message()
	if err != nil || len(m.Key) > 0 || json.Unmarshal(m.Value, &p) != nil || p.Database == 0 {
		return 0, false
	}
	return time.UnixMilli(p.Database).Sub(r.AppendedAt()), true
}

// ToldAhead returns by how much the database's clock is ahead of the brokers', as the newest probes in a topic say; also a
// difference that a Clock does not believe. It appends nothing.
func ToldAhead(ctx context.Context, log Log, topic string) (time.Duration, error) {
	c := New(nil)
	err := c.learnDatabase(ctx, log, topic, nil, databaseMost)
	return c.DatabaseAhead(), err
}

// Offset returns by how much another clock, such as the database's, is ahead of that of this machine: the possible offset nearest to
// zero, measured by the fastest of three answers.
func Offset(ctx context.Context, ask func(context.Context) (time.Time, error)) (offset time.Duration, err error) {
	fastest := time.Duration(-1)
	for range probesPerRound {
		sent := time.Now()
		at, err := ask(ctx)
		answered := time.Now()
		if err != nil {
			return 0, err
		}
		if trip := answered.Sub(sent); fastest < 0 || trip < fastest {
			fastest, offset = trip, rangeOf(sent, answered, at).smallest()
		}
	}
	return offset, nil
}
