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

// learnDatabase sets DatabaseAhead: by the measurement of this process, or, if it knows no database,
// by the newest probes in the topic of processes that do. A relay need not reach the database.
func (c *BrokerClock) learnDatabase(ctx context.Context, cluster *Cluster, topic string, own []time.Duration) error {
	if c.Database != nil {
		c.setDatabaseAhead(own)
		return nil
	}
	first, end, err := cluster.Bounds(ctx, topic, 0)
	if err != nil {
		return err
	}
	var all []time.Duration // oldest first
	_, err = Scan(ctx, cluster, topic, Span{First: max(first, end-probesBack), End: end}, func(f wire.Fetched) error {
		for i := range f.Records {
			if ahead, ok := databaseAhead(&f.Records[i]); ok {
				all = append(all, ahead)
			}
		}
		if f.Free != nil {
			f.Free()
		}
		return nil
	})
	if err == nil {
		c.setDatabaseAhead(all)
	}
	return err
}

// setDatabaseAhead takes the largest of the newest measurements. Each one is too small by the time
// that its append took. Older ones do not count: a broker's clock may have been set since.
func (c *BrokerClock) setDatabaseAhead(newest []time.Duration) {
	if len(newest) == 0 {
		return // no process that knows it has probed lately: the clocks are as they were
	}
	ahead := newest[len(newest)-1]
	for _, other := range newest[max(0, len(newest)-probesPerRound):] {
		if other > ahead && other-ahead < probeSlow {
			ahead = other
		}
	}
	if ahead.Abs() < databaseSlack {
		ahead = 0
	}
	c.databaseAhead.Store(int64(ahead))
}

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
