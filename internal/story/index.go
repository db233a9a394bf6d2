package story

import (
	"context"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"time"

	"orderclose"
	"orderclose/internal/kafka"
)

// Sight is a record that waits for somebody, or a dead letter that is pending.
type Sight struct {
	Topic     string
	Kind      Kind
	Partition int
	Offset    int64
	Leaves    time.Time // of a bucket's record; zero if it cannot be read
	Again     bool      // closing its order was tried before
}

// Sights are what an Index knows of one order.
type Sights struct {
	Found []Sight
	// Unseen says what was not looked at, and why; empty: nothing that may be the
	// order's.
	Unseen string
}

// Index looks for what waits of many orders. It reads each partition once, however
// often it is asked, up to where that ended when it was first asked: all that waits,
// or where the budget is too small for that only from some time before the oldest order
// was made that it was asked for. It keeps some 60 bytes of
// each record that waits, under a hash of its key: that of 500 orders one is taken
// for one of a million others happens once in 37 thousand million times.
//
// An Index belongs to one goroutine.
type Index struct {
	log    Log
	places []Place
	left   int64 // offsets that may yet be read
	seed   maphash.Seed

	counts  []int // of partitions, by place; 0: not known yet
	parts   map[partAt]*part
	sights  []sight
	last    map[uint64]int32          // by hash of the key: the sight of it that was found last
	settled map[partAt]map[int64]bool // dead letters that are
}

// partAt is a partition of one of the places.
type partAt struct{ place, partition int }

// part is a partition as it was when it was first asked for.
type part struct {
	begun   bool
	commit  kafka.Commit
	floor   int64 // nothing below it waits
	end     int64
	low     int64        // what lies in [low, end) was read, or is to do
	since   time.Time    // what orders of that age may have lies there; zero: nobody asked yet
	todo    []kafka.Span // what of it is
	problem error
}

// sight is a Sight as it is kept, in a list of those of the same key.
type sight struct {
	leaves, offset   int64
	before           int32 // -1: none
	place, partition int32
	again            bool
}

// NewIndex returns an Index that reads at most budget offsets of the places, of
// those first that come first.
func NewIndex(log Log, places []Place, budget int64) *Index {
	return &Index{
		log: log, places: places, left: budget, seed: maphash.MakeSeed(), counts: make([]int, len(places)),
		parts: map[partAt]*part{}, last: map[uint64]int32{}, settled: map[partAt]map[int64]bool{},
	}
}

// Find looks for what waits of each of the orders, in their order. One without
// CreatedAt is looked for in all that waits.
func (x *Index) Find(ctx context.Context, orders []orderclose.Order) []Sights {
	var asked []ask
	unseen := ""
	for n, p := range x.places {
		parts, err := x.aim(ctx, n, orders)
		if err != nil && unseen == "" {
			unseen = fmt.Sprintf("%s: %v", p.Topic, err)
		}
		asked = append(asked, parts...)
	}
	x.extendAll(ctx, asked)
	for i, a := range asked {
		x.read(ctx, a.at, x.left/int64(len(asked)-i))
	}
	for _, a := range asked { // what others have left over
		x.read(ctx, a.at, x.left)
	}
	all := make([]Sights, len(orders))
	for i, o := range orders {
		all[i] = Sights{x.found(o.ID), unseen}
		if unseen == "" {
			all[i].Unseen = x.unseen(o.ID)
		}
	}
	return all
}

// ask is a partition that is asked for orders, the oldest of which was made then.
type ask struct {
	at     partAt
	oldest time.Time
}

// aim finds out which partitions of a place to read for the orders.
func (x *Index) aim(ctx context.Context, place int, orders []orderclose.Order) ([]ask, error) {
	if x.counts[place] == 0 {
		n, err := x.log.Partitions(ctx, x.places[place].Topic)
		if err != nil {
			return nil, err
		}
		x.counts[place] = n
	}
	oldest := map[int]time.Time{}
	for _, o := range orders {
		p := x.partition(place, o.ID)
		if t, ok := oldest[p]; !ok || o.CreatedAt.Before(t) {
			oldest[p] = o.CreatedAt
		}
	}
	var asked []ask
	for _, partition := range slices.Sorted(maps.Keys(oldest)) {
		at := partAt{place, partition}
		asked = append(asked, ask{at, oldest[partition]})
		if x.parts[at] == nil {
			x.parts[at] = &part{}
		}
		p := x.parts[at]
		if p.problem = nil; !p.begun {
			p.problem = x.begin(ctx, at, p)
		}
	}
	return asked, nil
}

func (x *Index) partition(place int, id string) int {
	return kafka.PartitionOf([]byte(id), x.counts[place])
}

// extendAll has the partitions read from where orders may be. The budget is for all
// that waits, if it is enough, else each has its share.
func (x *Index) extendAll(ctx context.Context, asked []ask) {
	left, all := x.left, int64(0)
	for _, a := range asked {
		all += x.parts[a.at].unread()
	}
	for i, a := range asked {
		p, room := x.parts[a.at], left
		if all > x.left {
			room = left / int64(len(asked)-i)
		}
		if p.problem == nil {
			p.problem = x.extend(ctx, a.at, p, a.oldest, room)
		}
		left -= min(room, p.pending())
	}
}

// extend has the partition read from where an order of that age may be: if there is
// room for all that waits, whatever the order's clock said.
func (x *Index) extend(ctx context.Context, at partAt, p *part, created time.Time, room int64) error {
	if p.low == p.floor {
		return nil
	}
	if created.IsZero() || p.unread() <= room {
		p.reach(at.partition, p.floor)
		return nil
	}
	if !p.since.IsZero() && !created.Before(p.since) {
		return nil
	}
	for _, before := range []time.Duration{slack, slack + doubt} { // where it should be goes first
		offset, err := x.log.OffsetAt(ctx, x.places[at.place].Topic, at.partition, created.Add(-before))
		if err != nil {
			return err
		}
		p.reach(at.partition, max(p.floor, offset))
	}
	p.since = created
	return nil
}

// reach has the partition read from an offset on.
func (p *part) reach(partition int, from int64) {
	if from < p.low {
		p.todo = append(p.todo, kafka.Span{Partition: partition, First: from, End: p.low})
		p.low = from
	}
}

// pending is how many offsets are to do.
func (p *part) pending() (n int64) {
	for _, s := range p.todo {
		n += s.Len()
	}
	return n
}

// unread is how many offsets wait and were not read.
func (p *part) unread() int64 { return p.pending() + p.low - p.floor }

// begin asks how far the partition is done, and where it ends.
func (x *Index) begin(ctx context.Context, at partAt, p *part) (err error) {
	place := x.places[at.place]
	p.commit.Offset = -1
	if place.Group != "" {
		commits, err := x.log.Commits(ctx, place.Group, place.Topic, x.counts[at.place])
		if err != nil {
			return err
		}
		p.commit = commits[at.partition]
	}
	first, end, err := x.log.Bounds(ctx, place.Topic, at.partition)
	if err != nil {
		return err
	}
	p.begun, p.end, p.low, p.floor = true, end, end, kafka.FirstWaiting(p.commit, first, end)
	return nil
}

// read reads what is to do of a partition, at most budget offsets of it.
func (x *Index) read(ctx context.Context, at partAt, budget int64) {
	p := x.parts[at]
	for p.problem == nil && budget > 0 && len(p.todo) > 0 {
		s := p.todo[0]
		s.End = min(s.End, s.First+budget)
		read, err := Scan(ctx, x.log, x.places[at.place].Topic, s, func(r orderclose.RawRecord) { x.see(at, p, r) })
		p.problem = err
		budget -= read - s.First
		x.left -= read - s.First
		if p.todo[0].First = read; read >= p.todo[0].End {
			p.todo = p.todo[1:]
		}
	}
}

// see keeps a record that waits. Of one that cannot be read there is its place.
func (x *Index) see(at partAt, p *part, r orderclose.RawRecord) {
	place := x.places[at.place]
	if place.Group != "" && done(p.commit, r.Offset, p.end) {
		return
	}
	s := sight{offset: r.Offset, place: int32(at.place), partition: int32(at.partition)}
	m, err := r.Message()
	switch mark, isMark := orderclose.ReadMark(&m); {
	case err != nil:
	case place.Kind == Dead && isMark:
		dead := partAt{at.place, mark.Partition}
		if x.settled[dead] == nil {
			x.settled[dead] = map[int64]bool{}
		}
		x.settled[dead][mark.Offset] = true
		return
	case place.Kind == Dead && isEvent(&m):
		return // its order was closed
	case place.Kind == Bucket:
		if due, err := m.Due(); err == nil {
			s.leaves = orderclose.Bucket{Length: place.Length}.Release(due, r.AppendedAt()).UnixMilli()
		}
	}
	// What the closer tries again says why, or for how often or how long it has done so.
	for _, key := range []string{orderclose.HeaderCause, orderclose.HeaderAttempt, orderclose.HeaderPendingSince} {
		if _, there := m.Header(key); there {
			s.again = true
		}
	}
	key := maphash.Bytes(x.seed, r.Key())
	if before, ok := x.last[key]; ok {
		s.before = before
	} else {
		s.before = -1
	}
	x.last[key] = int32(len(x.sights))
	x.sights = append(x.sights, s)
}

// isEvent says whether a dead letter is an event's.
func isEvent(m *orderclose.Message) bool {
	_, ok := m.Header(orderclose.HeaderContentType)
	return ok
}

// found returns what is known of an order, the places in their order.
func (x *Index) found(id string) (found []Sight) {
	i, ok := x.last[maphash.String(x.seed, id)]
	for ok && i >= 0 {
		s := x.sights[i]
		i = s.before
		place := x.places[s.place]
		if place.Kind == Dead && x.settled[partAt{int(s.place), int(s.partition)}][s.offset] {
			continue
		}
		sight := Sight{Topic: place.Topic, Kind: place.Kind, Partition: int(s.partition), Offset: s.offset, Again: s.again}
		if s.leaves != 0 {
			sight.Leaves = time.UnixMilli(s.leaves).UTC()
		}
		found = append(found, sight)
	}
	slices.Reverse(found)
	return found
}

// unseen says what of an order's partitions was not read.
func (x *Index) unseen(id string) string {
	for place := range x.places {
		at := partAt{place, x.partition(place, id)}
		p := x.parts[at]
		switch topic := x.places[place].Topic; {
		case p.problem != nil:
			return fmt.Sprintf("%s/%d: %v", topic, at.partition, p.problem)
		case len(p.todo) > 0:
			return fmt.Sprintf("%s/%d: the budget was spent before offset %d", topic, at.partition, p.todo[0].First)
		}
	}
	return ""
}
