package deadletters

import (
	"context"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/wire"
)

const (
	// catalogInterval is the interval between reads of the topic. It bounds how old a page is: a
	// person reloads a page a few seconds after a redrive.
	catalogInterval = 2 * time.Second
	// publishInterval is the interval between states while the topic is read for the first time.
	publishInterval = time.Second
	// maxLetters bounds the dead letters in memory. Beyond it the oldest ones leave the catalog.
	maxLetters = 4_000_000
	// chartHours is the number of hours in CatalogState.ByHour: a week.
	chartHours = 7 * 24
)

// Catalog is an index of all dead letters of the topic, pending or not, in at most 64 bytes of
// memory for each. Run fills it. Pages are found in memory, and only the dead letters of a page
// are read from Kafka. The methods are safe for concurrent use.
type Catalog struct {
	log        Log
	topic      string
	logger     *slog.Logger
	maxLetters int
	deleted    func(partition, pending int) // called if retention deleted pending dead letters; nil: not called

	mu    sync.RWMutex
	index *Index
	next  map[int]wire.Position // by partition: the position of the next read
	state CatalogState

	// These belong to Run.
	id        [16]byte           // of the topic; zero: not known, or the brokers have no topic ids
	spans     map[int]kafka.Span // by partition: its offsets when they were last requested
	readable  bool               // a read was allowed
	changed   bool               // dead letters were added, resolved or removed since they were counted
	counted   time.Time          // the hour in which they were counted
	published time.Time          // when the state was set
}

// CatalogState is the state of the topic as a Catalog knows it. Its maps and slices must not be
// changed.
type CatalogState struct {
	State       // At is zero if the topic was never read to its end
	Letters int `json:"letters"` // in the catalog, pending or not
	// BySource is the number of pending dead letters by the topic of their record. All topics beyond
	// 255 count as Other.
	BySource Counts `json:"by_source"`
	// ByHour has the pending dead letters of the last week by the hour of their append time, oldest
	// first. The last hour has also those with a later time, because clocks differ.
	ByHour []Hour `json:"by_hour"`
	Before int    `json:"before"` // pending and appended before the first hour
	// Left is the number of dead letters that left the catalog because there are more than it
	// holds. They are in no page and in no number. Some of them may have been deleted since.
	Left int `json:"left"`
	// Complete is set once the topic was read to its end, since the start or since the topic was
	// recreated. Until then pages are incomplete.
	Complete bool `json:"complete"`
	// Read and Total count offsets: how far the topic is read.
	Read  int64 `json:"read"`
	Total int64 `json:"total"`
	// Problem says why the topic, or one of its partitions, cannot be read, and FailingSince when
	// that began. What could be read since At is in the other fields.
	Problem      string    `json:"problem,omitempty"`
	FailingSince time.Time `json:"failing_since,omitzero"`
}

// Hour is a number of dead letters that were appended within an hour.
type Hour struct {
	From    time.Time `json:"from"`
	Pending int       `json:"pending"`
}

// NewCatalog returns an empty Catalog of a topic.
func NewCatalog(log Log, topic string, logger *slog.Logger) *Catalog {
	return &Catalog{log: log, topic: topic, logger: logger, maxLetters: maxLetters, index: newIndex(), next: map[int]wire.Position{}, spans: map[int]kafka.Span{}}
}

// Run follows the topic from its beginning, without a group, until ctx ends. If the topic is
// missing or may not be read, Run logs that once, keeps trying, and State says so. Call Run once.
func (c *Catalog) Run(ctx context.Context) {
	c.follow(ctx, catalogInterval, "reading dead letters failed, the catalog of dead letters is out of date", func() {})
}

// State returns the state of the topic. It does no work and does not wait for Kafka.
func (c *Catalog) State() CatalogState {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.state
}

// publish counts the dead letters, if they have changed, and sets the state.
func (c *Catalog) publish(change func(*CatalogState)) {
	s, now := c.state, time.Now() // only Run writes them
	hour := now.UTC().Truncate(time.Hour)
	if c.changed || !hour.Equal(c.counted) {
		c.count(&s, hour)
		c.changed, c.counted = false, hour
	}
	s.Read, s.Total = c.progress()
	change(&s)
	c.published = now
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state = s
}

// count counts the dead letters. hour is the present hour. It takes 5 ms for a million. It needs
// no lock: only Run calls it, and only Run changes the entries.
func (c *Catalog) count(s *CatalogState, hour time.Time) {
	first := hour.Add(-(chartHours - 1) * time.Hour)
	s.Letters, s.Oldest, s.ByHour, s.Before, s.Left = c.index.letters, time.Time{}, make([]Hour, chartHours), 0, 0
	for i := range s.ByHour {
		s.ByHour[i].From = first.Add(time.Duration(i) * time.Hour)
	}
	for _, all := range c.index.partitions {
		s.Left += all.left
	}
	oldest, begin := int64(math.MaxInt64), first.UnixMilli()
	byCause, bySource := make([]int, len(c.index.causes.all)), make([]int, len(c.index.sources.all))
	c.index.eachPending(func(e *entry) {
		byCause[e.cause]++
		bySource[e.source]++
		oldest = min(oldest, e.at)
		if after := e.at - begin; after < 0 {
			s.Before++
		} else {
			s.ByHour[min(after/time.Hour.Milliseconds(), chartHours-1)].Pending++
		}
	})
	if oldest != math.MaxInt64 {
		s.Oldest = time.UnixMilli(oldest).UTC()
	}
	s.Pending, s.BySource = c.index.causes.counts(byCause), c.index.sources.counts(bySource)
}

// add adds the next records of a partition, in order. next is the position behind them.
func (c *Catalog) add(partition int, batch []wire.Message, next wire.Position) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range batch {
		if resolution, ok := wire.DecodeResolution(&m); ok {
			c.index.resolve(resolution, m.Offset)
		} else {
			c.index.add(Read(partition, m))
		}
	}
	c.trim()
	c.next[partition], c.changed = next, true
}

// trim removes the oldest entries beyond maxLetters.
func (c *Catalog) trim() {
	for ; c.index.letters > c.maxLetters; c.index.letters-- {
		var oldest *entries
		for _, all := range c.index.partitions {
			if all.n > 0 && (oldest == nil || all.at(0).order < oldest.at(0).order) {
				oldest = all
			}
		}
		oldest.leave()
	}
}

// forget removes the records below an offset, because retention deleted them.
func (c *Catalog) forget(partition int, below int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	changed, lost := c.index.forget(partition, below)
	c.changed = c.changed || changed
	if lost > 0 && c.deleted != nil {
		c.deleted(partition, lost)
	}
}

// restart removes all records of a partition, so that it is read from its beginning: its offsets belong
// to other records now.
func (c *Catalog) restart(partition int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.index.forget(partition, math.MaxInt64)
	delete(c.next, partition)
	c.state.Complete, c.changed = false, true
}
