package clock

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"time"

	"github.com/orderclose/orderclose/internal/wire"
)

const (
	// probeEvery is the time between two measurements. A clock that is synchronised at all drifts by far less than a millisecond in between.
	probeEvery = 30 * time.Second
	// probeRetry is the pause after a measurement without a sample.
	probeRetry = time.Second
	// probeSlow is the longest round trip of a sample. A slower answer is ignored.
	probeSlow = 200 * time.Millisecond
	// sampleAge is how long Keep waits for a sample within probeSlow. After that, a slower answer is a sample too. Its offset is wrong by
	// a round trip at most, and a wrong offset of this kind makes nothing early.
	sampleAge = time.Minute
	// probesPerRound is the number of probes of a measurement. The probe with the shortest round trip counts.
	probesPerRound = 3
	// stepEvery is how often Keep checks whether the machine's clock was set.
	stepEvery = 5 * time.Second
)

// ErrNoAppendTime means that a broker answers an append without the time of the append.
var ErrNoAppendTime = errors.New("the broker tells no append time: the topic is not set to LogAppendTime, or the broker ignores that setting")

// Log is what a Clock needs of Kafka. Cluster of internal/kafka implements it.
type Log interface {
	// Append appends messages to a partition, and returns the append time by the clock of its leader; zero if the broker tells none.
	Append(ctx context.Context, topic string, partition int, messages []wire.Message) (time.Time, error)
	// ReportAppends calls Appended of the clock after each append of the Log, until stop is called.
	ReportAppends(to *Clock) (stop func())
	// Tail calls each with the records at the last n offsets of a partition, oldest first. A record is valid until each returns.
	Tail(ctx context.Context, topic string, partition int, n int64, each func(*wire.RawRecord)) error
}

// KeepOptions are the options of Keep. Log, Topic and Logger are required.
type KeepOptions struct {
	Log      Log
	Topic    string                                   // the control topic. It must use LogAppendTime
	Database func(context.Context) (time.Time, error) // asks for the database's time; nil: this process knows no database
	Measured func(offset time.Duration)               // is called with each measured offset of the brokers' clock from that of this machine; may be nil
	Logger   *slog.Logger
}

// Keep measures the brokers' clock at once and then every 30 s, until ctx ends. It measures by probe records that it appends to the
// topic. It measures sooner if the machine's clock was set, or if the append time of any append does not match the estimate, which
// shows that a broker's clock was set or differs.
func (c *Clock) Keep(ctx context.Context, o KeepOptions) {
	defer o.Log.ReportAppends(c)()
	started, said := time.Now(), "" // no warning while Kafka starts, and one for each reason
	sampled := started
	for {
		pause := probeRetry
		select {
		case <-c.mismatch: // one from here on may be newer than the measurement
		default:
		}
		slowest := probeSlow
		if time.Since(sampled) >= sampleAge {
			slowest = math.MaxInt64
		}
		measured, err := c.measure(ctx, o, slowest)
		if err != nil && ctx.Err() == nil && time.Since(started) >= probeEvery && err.Error() != said {
			said = err.Error()
			o.Logger.Warn("measuring the brokers' clock failed, will retry", "topic", o.Topic, "err", err)
		}
		if measured != nil {
			said, sampled = "", time.Now()
			if err := c.learnDatabase(ctx, o.Log, o.Topic, measured.databaseAhead, databaseTold); err != nil && ctx.Err() == nil {
				o.Logger.Warn("learning the database's clock from the control topic failed, will retry", "topic", o.Topic, "err", err)
			}
			if o.Measured != nil {
				o.Measured(measured.offset())
			}
			pause = probeEvery
		}
		if !c.rest(ctx, pause) {
			return
		}
	}
}

// Measure measures once, as Keep does. If ok is false, nothing was measured: err is the error of the last probe that failed,
// ErrNoAppendTime, or nil if every probe was answered, but after more than 200 ms.
func (c *Clock) Measure(ctx context.Context, log Log, topic string) (offset time.Duration, ok bool, err error) {
	measured, err := c.measure(ctx, KeepOptions{Log: log, Topic: topic}, probeSlow)
	if measured == nil {
		return 0, false, err
	}
	return measured.offset(), true, nil
}

// measure sends probesPerRound probes, and stores the sample with the shortest round trip. A probe brings a sample if its answer
// arrives within slowest and has an append time. If no probe brings a sample, measure returns nil and the error of the last probe that
// failed or had no append time (ErrNoAppendTime); the error is nil if all were only slow.
func (c *Clock) measure(ctx context.Context, o KeepOptions, slowest time.Duration) (best *sample, err error) {
	shortest, database := slowest, c.askDatabase(ctx, o.Database)
	for range probesPerRound {
		sent := c.local()
		at, failed := o.Log.Append(ctx, o.Topic, 0, []wire.Message{probeOf(sent, database)})
		answered := c.local()
		if failed == nil && at.IsZero() {
			failed = ErrNoAppendTime
		}
		if failed != nil {
			err = failed
			continue
		}
		if trip := answered.mono - sent.mono; trip <= shortest {
			offset := rangeOf(answered.wall.Add(-trip), answered.wall, at).believed()
			shortest, best = trip, &sample{local: answered, broker: answered.wall.Add(offset)}
			if !database.IsZero() {
				best.databaseAhead = []time.Duration{database.Add(sent.mono).Sub(at)}
			}
		}
	}
	if best == nil {
		return nil, err
	}
	c.lastSample.Store(best)
	return best, nil
}

// rest waits for d, until the wall clock was set, or until an append time does not match. A machine that was suspended counts as one
// whose clock was set. rest returns false as soon as ctx ends.
func (c *Clock) rest(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for began := c.local(); ; {
		now := c.local()
		passed := now.mono - began.mono
		if passed >= d || wasSet(began, now) {
			return ctx.Err() == nil
		}
		timer.Reset(min(stepEvery, d-passed))
		select {
		case <-ctx.Done():
			return false
		case <-c.mismatch:
			return true //mutant:append-time-ignored
		case <-timer.C:
		}
	}
}

// wasSet reports whether the wall clock and the monotonic clock have advanced differently between two readings.
func wasSet(from, to reading) bool {
	return (to.wall.Sub(from.wall) - (to.mono - from.mono)).Abs() > stepSize
}
