package compensator

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"golang.org/x/time/rate"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/send"
	"github.com/orderclose/orderclose/internal/wire"
)

const (
	// pageTimeout is how long a page is tried before scheduling is interrupted and
	// continued later: enough for four unanswered attempts, each in a smaller bucket.
	pageTimeout = 20 * time.Second
	// bucketRest is how long a bucket is avoided after an append failed, if a smaller one accepts
	// records. If none does, the best one is tried again each second.
	bucketRest = 15 * time.Second
)

// databaseClock computes the database's time without asking the database again. It adds the local
// monotonic time since the last reading, so a wrong local clock does not matter.
type databaseClock struct{ at, read time.Time }

func (c databaseClock) now() time.Time { return c.at.Add(time.Since(c.read)) }

// newSender returns a Sender whose partitions rest for a second at most. If all buckets fail, the
// rescheduler can only try again.
func newSender(kafka send.KeyedProducers, logger *slog.Logger) *send.Sender {
	return send.New(send.Options{Producers: kafka, Group: kafka.GroupByKey, MaxRest: time.Second, Logger: logger})
}

// rescheduler schedules again the orders whose records may be lost. It belongs to one
// goroutine.
type rescheduler struct {
	store      DueStore
	sender     *send.Sender
	buckets    func() orderclose.Buckets
	closeTopic string
	limiter    *rate.Limiter // for orders
	grace      time.Duration // orders that are overdue for longer are left to the sweep
	pageSize   int
	logger     *slog.Logger
	count      func(orders float64) // counts the orders that were scheduled

	progress progress
}

// progress is how far the orders are scheduled again.
type progress struct {
	after    orderclose.Order // the last order that was scheduled
	until    time.Time        // orders due up to this time are scheduled; zero: scheduling has not begun
	complete bool
}

// restart makes the next page the first one.
func (s *rescheduler) restart() { s.progress = progress{} }

// run appends a record for each unpaid order whose record may be lost. Those are the orders
// that are due later than the sweep's cutoff, since the sweep closes the others, and no
// further ahead than losses.dueWithin. An order whose record was not lost gets a duplicate,
// which is harmless. run calls refresh before each page. refresh returns the losses, and may
// call restart. After an error the next run continues after the last page. If all orders are
// scheduled, run does nothing.
func (s *rescheduler) run(ctx context.Context, clock databaseClock, refresh func(context.Context) losses) error {
	from, begin := clock.at.Add(-s.grace), time.Now()
	appended, refused := 0, 0
	defer func() {
		if appended+refused > 0 {
			s.logger.Info("scheduled orders again", "orders", appended, "refused", refused, "due_up_to", s.progress.after.Due.UTC(), "took", time.Since(begin))
		}
	}()
	for !s.progress.complete {
		lost := refresh(ctx)
		if s.progress.until.IsZero() {
			s.progress.until = clock.now().Add(lost.dueWithin)
		}
		page, err := s.store.DueBetween(ctx, from, s.progress.until, s.progress.after, s.pageSize)
		if err != nil {
			return err
		}
		if len(page) == 0 {
			s.progress.complete = true
			break
		}
		last := page[len(page)-1]
		page = slices.DeleteFunc(page, func(o orderclose.Order) bool { return lost.unaffected(o, clock.now()) })
		if err := s.limiter.WaitN(ctx, len(page)); err != nil {
			return err
		}
		n, err := s.publishAll(ctx, page, clock)
		if err != nil {
			return err
		}
		s.progress.after = last
		appended += len(page) - n
		refused += n
		s.count(float64(len(page) - n))
	}
	return nil
}

// publishAll appends the records of a page of orders as a producer does. If a bucket accepts no
// records, they go to a smaller one. It returns how many orders cannot be scheduled.
func (s *rescheduler) publishAll(ctx context.Context, page []orderclose.Order, clock databaseClock) (refused int, err error) {
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	refuse := func(id string, err error) {
		s.logger.Error("order not scheduled again, a sweep will close it after its due time", "order", id, "err", err)
		refused++
	}
	var left []wire.RawRecord
	for _, o := range page {
		record, err := s.record(o, clock)
		if err != nil {
			refuse(o.ID, err)
			continue
		}
		left = append(left, record)
	}
	for pauses := retry.NewBackOff(); len(left) > 0; {
		topics := map[string][]wire.RawRecord{}
		for _, r := range left {
			topic := s.topic(time.UnixMilli(r.DueAt).Sub(clock.now()))
			topics[topic] = append(topics[topic], r)
		}
		left = nil
		attempt, cancel := context.WithTimeout(ctx, send.MaxTime)
		s.sender.AppendAll(attempt, topics, func(sent send.Result) {
			for _, r := range sent.Refused {
				refuse(string(r.Record.Key()), r.Err)
			}
			left = append(left, sent.Left...)
			err = cmp.Or(sent.Err, err)
		})
		cancel()
		if len(left) > 0 && !retry.Sleep(ctx, pauses.NextBackOff()) {
			return refused, fmt.Errorf("%d records: %w; last attempt: %w", len(left), context.Cause(ctx), err)
		}
	}
	return refused, nil
}

// record returns the record of an order, with its due time.
func (s *rescheduler) record(o orderclose.Order, clock databaseClock) (wire.RawRecord, error) {
	if err := o.Validate(clock.now(), wire.MaxDelayLimit); err != nil {
		return wire.RawRecord{}, err
	}
	m, err := wire.Record{Order: o, Release: o.Due}.Encode()
	record := m.Raw()
	record.DueAt = o.Due.UnixMilli()
	return record, err
}

// topic returns the topic for a record with this remaining time: the bucket that fits, or the next
// smaller one that has not failed lately. The relay of that bucket forwards the record as soon as the right
// bucket accepts records. If all of them failed, it returns the bucket that fits.
func (s *rescheduler) topic(remaining time.Duration) string {
	if remaining <= 0 {
		return s.closeTopic
	}
	buckets := s.buckets()
	best := buckets.Pick(remaining)
	for _, b := range slices.Backward(buckets.Open()) {
		if until, _ := s.sender.Resting(b.Topic); b.Length <= best.Length && time.Since(until) >= bucketRest {
			return b.Topic //mutant:failing-bucket-stops
		}
	}
	return best.Topic
}
