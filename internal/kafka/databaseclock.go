package kafka

import (
	"context"
	"encoding/json"
	"time"

	"github.com/orderclose/orderclose/internal/wire"
)

const (
	// databaseSlack is the largest difference between the brokers' clock and the database's that
	// DatabaseNow ignores. Clocks that are synchronised at all are much closer, and then the
	// brokers' clock, which is measured exactly, is used as it is.
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
	// probesBack is how many records of the control topic are searched for the database's time:
	// those of a minute of 50 relays and closers, and more.
	probesBack = 500
)

// probe is the value of a probe record. Times are Unix milliseconds.
type probe struct {
	Local    int64 `json:"probe"`
	Database int64 `json:"database,omitempty"` // at the same moment; absent if the process knows no database
}

// databaseTime is one moment by the database's clock and by the local monotonic clock.
type databaseTime struct {
	at   time.Time
	mono time.Duration
}

// DatabaseNow returns the database's time, which decides when an order is due. It is the brokers'
// time if the two clocks differ by less than half a second, or while the database's is not known.
func (c *BrokerClock) DatabaseNow() time.Time { return c.Now().Add(c.DatabaseAhead()) }

// DatabaseAhead returns by how much DatabaseNow is ahead of Now.
func (c *BrokerClock) DatabaseAhead() time.Duration { return time.Duration(c.databaseAhead.Load()) }

// askDatabase returns the database's time; nil if it is not known. The answer counts as the time at
// its arrival: a clock that is believed to be slower than it is makes nothing early.
func (c *BrokerClock) askDatabase(ctx context.Context) *databaseTime {
	if c.Database == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, databaseTimeout)
	defer cancel()
	at, err := c.Database(ctx)
	if err != nil { // the closer reports a database that does not answer
		return nil
	}
	return &databaseTime{at, c.local().mono}
}

// when returns the database's time at a local moment.
func (d *databaseTime) when(local reading) time.Time { return d.at.Add(local.mono - d.mono) }

// probeOf returns the probe record for this moment.
func probeOf(sent reading, database *databaseTime) wire.Message {
	p := probe{Local: sent.wall.UnixMilli()}
	if database != nil {
		p.Database = database.when(sent).UnixMilli()
	}
	value, _ := json.Marshal(p) // two numbers
	return wire.Message{Value: value}
}

// probeLog is where probes are read.
type probeLog interface {
	LogReader
	Bounds(ctx context.Context, topic string, partition int) (first, end int64, err error)
}

// learnDatabase sets DatabaseAhead: by the measurement of this process, or, if its database is unknown
// or does not answer, by the newest probes in the topic of processes whose database does. A relay
// need not reach the database. If the probes of others say that the database is behind by more than told, they do not count.
func (c *BrokerClock) learnDatabase(ctx context.Context, log probeLog, topic string, own []time.Duration, told time.Duration) error {
	if len(own) > 0 {
		c.setDatabaseAhead(own, databaseMost)
		return nil
	}
	first, end, err := log.Bounds(ctx, topic, 0)
	if err != nil {
		return err
	}
	var all []time.Duration // oldest first
	_, err = Scan(ctx, log, topic, Span{First: max(first, end-probesBack), End: end}, func(f wire.Fetched) error {
		for i := range f.Records {
			r := &f.Records[i]
			if ahead, ok := databaseAhead(r); ok && c.Now().Sub(r.AppendedAt()) <= databaseFresh {
				all = append(all, ahead)
			}
		}
		if f.Free != nil {
			f.Free()
		}
		return nil
	})
	if err == nil {
		c.setDatabaseAhead(all, told)
	}
	return err
}

// DatabaseAhead returns what the probes in a topic say, also a difference that a BrokerClock does not believe. It appends nothing.
func (c *Cluster) DatabaseAhead(ctx context.Context, topic string) (time.Duration, error) {
	clock := NewBrokerClock(nil)
	err := clock.learnDatabase(ctx, c, topic, nil, databaseMost)
	return clock.DatabaseAhead(), err
}

// setDatabaseAhead takes the largest of the newest measurements. Each measurement is too small by the
// time that its append took, which may be seconds while a broker restarts. So a measurement that no
// other one confirms does not count. A measurement does not count either if it says that the
// database is behind by more than most. Older measurements do not count either, because a broker's clock
// may have been set since.
func (c *BrokerClock) setDatabaseAhead(newest []time.Duration, most time.Duration) {
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

// databaseAhead returns by how much the database's clock was ahead of the broker's when the broker
// appended the probe. ok is false for any other record.
func databaseAhead(r *wire.RawRecord) (ahead time.Duration, ok bool) {
	m, err := r.Message()
	if err != nil || len(m.Key) > 0 {
		return 0, false
	}
	var p probe
	if err := json.Unmarshal(m.Value, &p); err != nil || p.Database == 0 {
		return 0, false
	}
	return time.UnixMilli(p.Database).Sub(r.AppendedAt()), true
}
