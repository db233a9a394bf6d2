package deadletters

import (
	"context"
	"hash/maphash"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/orderclose/orderclose/internal/wire"
)

const (
	// catalogInterval is the interval between reads of the topic. It bounds how old a page is: a
	// person reloads a page a few seconds after a redrive.
	catalogInterval = 2 * time.Second
	// publishInterval is the interval between states while the topic is read for the first time.
	publishInterval = time.Second
	// defaultMaxLetters is the default of MaxLetters.
	defaultMaxLetters = 4_000_000
	// chartHours is the number of hours in CatalogState.ByHour: a week.
	chartHours = 7 * 24
)

// CatalogOptions are the options of a Catalog. Log and Topic must be set.
type CatalogOptions struct {
	Log   FollowedLog
	Topic string
	// MaxLetters bounds the dead letters in memory; default 4,000,000. Beyond it the oldest ones
	// leave the catalog.
	MaxLetters int
	Logger     *slog.Logger // default: discard
}

// Catalog is an index of all dead letters of the topic, pending or not, in at most 64 bytes of
// memory for each. Run fills it. Pages are found in memory, and only the dead letters of a page
// are read from Kafka. The methods are safe for concurrent use.
type Catalog struct {
	o    CatalogOptions
	hash func(key string) uint64 // with a seed of its own, so that nobody can make two keys with one hash

	mu         sync.RWMutex
	partitions map[int]*entries
	next       map[int]int64 // by partition: the offset behind the last record in the index
	letters    int           // entries of all partitions
	causes     names
	stages     names
	sources    names
	state      CatalogState

	// These belong to Run.
	from      *follower
	changed   bool      // dead letters were added, resolved or removed since they were counted
	counted   time.Time // the hour in which they were counted
	published time.Time // when the state was set
}

// CatalogState is the state of the topic as a Catalog knows it. Its maps and slices must not be
// changed.
type CatalogState struct {
	State       // At is zero if the topic was never read to its end
	Letters int `json:"letters"` // in the catalog, pending or not
	// BySource is the number of pending dead letters by the topic of their record. All topics beyond
	// 255 count as Other.
	BySource map[string]int `json:"by_source"`
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

// NewCatalog returns an empty Catalog.
func NewCatalog(o CatalogOptions) *Catalog {
	if o.MaxLetters == 0 {
		o.MaxLetters = defaultMaxLetters
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	seed := maphash.MakeSeed()
	c := &Catalog{o: o, partitions: map[int]*entries{}, next: map[int]int64{}}
	c.hash = func(key string) uint64 { return maphash.String(seed, key) }
	c.from = newFollower(o.Log, o.Topic, c)
	return c
}

// Run follows the topic from its beginning, without a group, until ctx ends. If the topic is
// missing or may not be read, Run logs that once, keeps trying, and State says so. Call Run once.
func (c *Catalog) Run(ctx context.Context) {
	c.from.run(ctx, c.o.Logger, catalogInterval, "reading dead letters failed, the catalog of dead letters is out of date", c.poll)
}

// poll reads the new records and sets the state.
func (c *Catalog) poll(ctx context.Context) error {
	began := time.Now()
	err := c.from.poll(ctx)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	c.publish(func(s *CatalogState) {
		switch {
		case err == nil:
			s.At, s.Complete, s.Problem, s.FailingSince = time.Now(), true, "", time.Time{}
		case s.Problem == "":
			s.FailingSince = began
			fallthrough
		default:
			s.Problem = err.Error()
		}
	})
	return err
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
	s.Read, s.Total = c.from.progress()
	change(&s)
	c.published = now
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state = s
}

// count counts the dead letters. hour is the present hour. It takes 5 ms for a million. It needs
// no lock: only Run calls it, and only Run changes the entries.
func (c *Catalog) count(s *CatalogState, hour time.Time) {
	s.Pending, s.Oldest, s.Letters = c.from.index.Pending(), time.Time{}, c.letters
	first := hour.Add(-(chartHours - 1) * time.Hour)
	s.ByHour, s.Before, s.Left = make([]Hour, chartHours), 0, 0
	for i := range s.ByHour {
		s.ByHour[i].From = first.Add(time.Duration(i) * time.Hour)
	}
	oldest, bySource := int64(math.MaxInt64), make([]int, len(c.sources.all))
	for _, all := range c.partitions {
		s.Left += all.left
		for i := range all.n {
			e := all.at(i)
			if e.how != pending {
				continue
			}
			bySource[e.source]++
			oldest = min(oldest, e.at)
			if after := e.at - first.UnixMilli(); after < 0 {
				s.Before++
			} else {
				s.ByHour[min(after/time.Hour.Milliseconds(), chartHours-1)].Pending++
			}
		}
	}
	if oldest != math.MaxInt64 {
		s.Oldest = time.UnixMilli(oldest).UTC()
	}
	s.BySource = map[string]int{}
	for id, n := range bySource {
		s.BySource[c.sources.all[id]] = n
	}
}

// add implements subscriber.
func (c *Catalog) add(partition int, batch []wire.Message) {
	c.addAll(partition, batch)
	c.changed = true
	if time.Since(c.published) >= publishInterval {
		c.publish(func(*CatalogState) {})
	}
}

func (c *Catalog) addAll(partition int, batch []wire.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.partitions[partition]
	if all == nil {
		all = &entries{}
		c.partitions[partition] = all
	}
	for _, m := range batch {
		c.next[partition] = m.Offset + 1
		if resolution, ok := wire.DecodeResolution(&m); ok {
			c.resolve(resolution, m.Offset)
			continue
		}
		l := Read(partition, m)
		all.add(entry{
			offset: m.Offset, at: l.AppendedAt.UnixMilli(), key: c.hash(l.Key),
			cause: c.causes.id(c.from.index.Add(l.At, l.Cause)), stage: c.stages.id(l.Stage), source: c.sources.id(l.Source.Topic),
		})
		c.letters++
	}
	c.trim()
}

// resolve marks an entry as resolved by the record at offset, if the index says that the resolution
// counts.
func (c *Catalog) resolve(m wire.Resolution, offset int64) {
	how, ok := c.from.index.Resolve(m)
	if !ok {
		return
	}
	if e := c.find(Position{m.Partition, m.Offset}); e != nil {
		e.how, e.resolved = uint8(slices.Index(resolutions, how)), offset
	}
}

// find returns the entry of a position, or nil.
func (c *Catalog) find(at Position) *entry {
	if all := c.partitions[at.Partition]; all != nil {
		return all.find(at.Offset)
	}
	return nil
}

// trim removes the oldest entries beyond MaxLetters.
func (c *Catalog) trim() {
	trimmed := map[int]int64{} // by partition: the offset below which entries left
	for ; c.letters > c.o.MaxLetters; c.letters-- {
		oldest := -1
		for p, all := range c.partitions {
			if all.n > 0 && (oldest < 0 || all.at(0).order < c.partitions[oldest].at(0).order) {
				oldest = p
			}
		}
		trimmed[oldest] = c.partitions[oldest].leave()
	}
	for p, below := range trimmed {
		c.from.index.Forget(p, below)
	}
}

// forget implements subscriber.
func (c *Catalog) forget(partition int, below int64, _ int) {
	all := c.partitions[partition]
	if all == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	n, left := all.n, all.left
	all.forget(below)
	c.letters -= n - all.n
	c.changed = c.changed || all.n != n || all.left != left
}

// restart implements subscriber.
func (c *Catalog) restart(partition int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if all := c.partitions[partition]; all != nil {
		c.letters -= all.n
		delete(c.partitions, partition)
	}
	delete(c.next, partition)
	c.state.Complete, c.changed = false, true
}
