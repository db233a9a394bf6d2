package deadletters

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/kafka/reads"
	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/wire"
)

const (
	// lookTimeout bounds one look. The next one continues where it ended.
	lookTimeout = 30 * time.Second
	// askedAgain is how many of the known dead letters one look asks the database about, those first that were not asked for longest.
	askedAgain = 2000
)

// Follower knows the open dead letters of a topic. Run or Look fills it. Its other methods are safe for concurrent use.
type Follower struct {
	topic  Topic
	most   int // dead letters in memory
	logger *slog.Logger

	mu      sync.Mutex
	letters []Letter // that are open; those that were not asked for longest first
	state   State

	// These belong to Run.
	id   [16]byte              // of the topic; zero: not known, or the brokers have no topic ids
	next map[int]wire.Position // by partition: the position of the next read
	left int64                 // offsets that are not read, because there is no room
}

// State is the state of the topic as its Follower knows it. Its map must not be changed.
type State struct {
	At     time.Time `json:"at,omitzero"`     // when the topic was read to its end; zero: never
	Open   Counts    `json:"open"`            // a cause whose dead letters have ended has the value 0
	Oldest time.Time `json:"oldest,omitzero"` // when the oldest open dead letter was appended; zero if there is none
	// Unlisted is the number of records that Letters does not return, because there are too many. They count as open.
	Unlisted int `json:"unlisted"`
	// Problem says why the topic, one of its partitions, or the orders cannot be read, and FailingSince when
	// that began. What could be read since At is in the other fields.
	Problem      string    `json:"problem,omitempty"`
	FailingSince time.Time `json:"failing_since,omitzero"`
}

// NewFollower returns a Follower that knows nothing yet.
func NewFollower(topic Topic, logger *slog.Logger) *Follower {
	return &Follower{topic: topic, most: MaxLetters, logger: logger, next: map[int]wire.Position{}}
}

// Run reads the topic from its beginning, without a group, and then at each interval what was appended, until ctx ends. It calls caughtUp, if that is
// not nil, each time it has read to the end. If the topic is missing or may not be read, Run logs that once, and keeps trying.
func (f *Follower) Run(ctx context.Context, interval time.Duration, caughtUp func(State)) {
	for failing := false; ; {
		s, err := f.Look(ctx)
		if ctx.Err() != nil {
			return
		}
		switch {
		case err == nil && caughtUp != nil:
			caughtUp(s)
		case err != nil && !failing:
			f.logger.Warn("reading dead letters failed, their numbers are out of date", "topic", f.topic.Name, "err", err)
		}
		if failing = err != nil; !retry.Sleep(ctx, interval) {
			return
		}
	}
}

// Look reads what was appended since the last one, and asks again about open orders.
func (f *Follower) Look(ctx context.Context) (State, error) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	err := f.askAgain(ctx)
	err = cmp.Or(err, f.read(ctx))
	return f.note(err, began), err
}

// note sets the state after a look that began then.
func (f *Follower) note(err error, began time.Time) State {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.letters = slices.DeleteFunc(f.letters, func(l Letter) bool { return !l.IsOpen(began) })
	s := State{At: f.state.At, Open: Counts{}, Unlisted: int(f.left)}
	for cause := range f.state.Open {
		s.Open[cause] = 0
	}
	for _, l := range f.letters {
		s.Open.add(l.Cause)
		if s.Oldest.IsZero() || l.AppendedAt.Before(s.Oldest) {
			s.Oldest = l.AppendedAt
		}
	}
	if s.Unlisted > 0 {
		s.Open[Other] += s.Unlisted
	}
	if err == nil {
		s.At = time.Now()
	} else {
		s.Problem, s.FailingSince = err.Error(), f.state.FailingSince
		if f.state.Problem == "" {
			s.FailingSince = began
		}
	}
	f.state = s
	return s
}

// State returns the state of the topic. It does no work and does not wait for Kafka.
func (f *Follower) State() State {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state
}

// Letters returns the open dead letters of a filter, without their records, the newest first. It reads nothing from Kafka.
func (f *Follower) Letters(of Filter) (all []Letter) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, l := range f.letters {
		if of.Match(&l) {
			all = append(all, l)
		}
	}
	slices.SortFunc(all, func(a, b Letter) int { return compare(b, a) })
	return all
}

// askAgain asks about the orders of some of the known dead letters, and puts these behind the others.
func (f *Follower) askAgain(ctx context.Context) error {
	f.mu.Lock()
	some := slices.Clone(f.letters[:min(len(f.letters), askedAgain)])
	f.mu.Unlock()
	err := f.topic.askOrders(ctx, some)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	ended := func(l Letter) bool { return !l.IsOpen(time.Now()) }
	f.letters = append(slices.Delete(f.letters, 0, len(some)), slices.DeleteFunc(some, ended)...)
	return nil
}

// read reads each partition to its present end. A partition that fails does not hold up the others. read returns the first error.
func (f *Follower) read(ctx context.Context) error {
	n, err := f.topic.Log.Partitions(ctx, f.topic.Name)
	if err != nil {
		return err
	}
	switch id, err := f.topic.Log.TopicID(ctx, f.topic.Name); {
	case err != nil:
		return err
	case id != f.id: // the new topic may have as many records as the old one //mutant:recreated-dead-letters
		for p := range f.next {
			f.restart(p)
		}
		f.id = id
	}
	f.left = 0
	var failed error
	for p, bounds := range f.topic.Log.Offsets(ctx, kafka.OffsetQueries(f.topic.Name, n, kafka.LogStart, kafka.LogEnd)) {
		failed = cmp.Or(failed, f.catchUp(ctx, p, bounds))
	}
	return failed
}

// errNoRoom ends the read of a partition. Its rest is read when dead letters have ended.
var errNoRoom = errors.New("there is no room for more dead letters")

// catchUp reads a partition to its end, and removes what retention deleted.
func (f *Follower) catchUp(ctx context.Context, p int, bounds kafka.OffsetAnswer) error {
	if bounds.Err != nil {
		return bounds.Err
	}
	first, end := bounds.Offsets[0], bounds.Offsets[1]
	if end < f.next[p].Offset {
		f.restart(p)
	}
	if lost := f.forget(p, first); lost > 0 {
		f.logger.Error("retention deleted open dead letters", "topic", f.topic.Name, "partition", p, "letters", lost)
	}
	next, known := f.next[p]
	if !known { // report missing access now, and not with the first dead letter
		at := wire.Position{Topic: f.topic.Name, Partition: p, Offset: end, NoWait: true, MaxBytes: reads.LittleBytes}
		if _, err := f.topic.Log.Read(ctx, at); err != nil {
			return err
		}
	}
	next.Offset = max(first, next.Offset)
	f.next[p] = next
	span := reads.Span{Partition: p, First: next.Offset, End: end, Log: next.Log}
	if !f.hasRoom() {
		f.left += span.Len()
		return nil
	}
	_, err := reads.Scan(ctx, f.topic.Log, f.topic.Name, span, func(read wire.Fetched) error {
		letters, err := f.topic.letters(ctx, p, read)
		if err != nil {
			return err
		}
		f.mu.Lock()
		for _, l := range letters {
			if l.IsOpen(time.Now()) {
				f.letters = append(f.letters, l)
			}
		}
		f.mu.Unlock()
		f.next[p] = wire.Position{Offset: min(read.Next, end), Log: read.Log}
		if !f.hasRoom() {
			return errNoRoom
		}
		return nil
	})
	switch {
	case errors.Is(err, errNoRoom):
		f.left += end - f.next[p].Offset
		return nil
	case errors.Is(err, reads.ErrRecreated):
		f.restart(p) // the next read begins at its start
	}
	return err
}

func (f *Follower) hasRoom() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.letters) < f.most
}

// restart forgets a partition: its offsets belong to other records now.
func (f *Follower) restart(p int) {
	f.forget(p, math.MaxInt64)
	delete(f.next, p)
}

// forget removes the dead letters below an offset, and returns how many there were.
func (f *Follower) forget(partition int, below int64) (removed int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := len(f.letters)
	f.letters = slices.DeleteFunc(f.letters, func(l Letter) bool { return l.At.Partition == partition && l.At.Offset < below })
	return before - len(f.letters)
}
