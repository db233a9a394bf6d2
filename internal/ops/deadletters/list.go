package deadletters

import (
	"context"
	"errors"
	"slices"

	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/wire"
)

// maxListing bounds the records of a Listing, in bytes. Dead letters of the stages have up to
// 140 KB, those of other programs as much as the broker accepts.
const maxListing = 16 << 20

// Listing are dead letters that were read from Kafka.
type Listing struct {
	Letters []Letter `json:"letters"`
	// Gone is the number of dead letters that are not in the topic any more, such as those that
	// retention has deleted since they were indexed, or cannot be read.
	Gone int `json:"gone"`
	// Next is set if there are more: those after it were not listed.
	Next *Position `json:"next,omitempty"`
}

// List returns the dead letters of a page, with their resolutions. If their records have more than
// 16 MB, it returns fewer of them, but at least one. So a page may have fewer dead letters
// than the limit, even none, and still have a Next.
func (c *Catalog) List(ctx context.Context, q Query) (Listing, error) {
	page := c.Page(q)
	l, err := c.Letters(ctx, page.Positions)
	if err != nil {
		return l, err
	}
	if l.Next == nil {
		l.Next = page.Next
	}
	l.Letters = slices.DeleteFunc(l.Letters, func(l Letter) bool { return q.Order != "" && l.Key != q.Order }) //mutant:same-hash-shown
	return l, nil
}

// Letters reads the dead letters at these positions, and returns them in this order, with their
// resolutions as of the last read of the topic. It fetches 64 KB at the first of them, then at the
// first that was not among these, and so on. A position that is not in the catalog counts as gone.
// If the records have more than 16 MB, Letters returns only the first ones, at least one, and sets
// Next to the last of them.
func (c *Catalog) Letters(ctx context.Context, positions []Position) (Listing, error) {
	r := &reading{c: c, end: len(positions)}
	for wanted := r.find(positions); len(wanted) > 0; {
		var err error
		if wanted, err = r.read(ctx, wanted); err != nil {
			return Listing{}, err
		}
	}
	l := Listing{Letters: []Letter{}}
	for i := range r.end {
		if found, ok := r.letters[i]; ok {
			l.Letters = append(l.Letters, found)
		} else {
			l.Gone++
		}
	}
	if r.end < len(positions) {
		l.Next = new(positions[r.end-1])
	}
	return l, nil
}

// reading is the state of one Letters.
type reading struct {
	c       *Catalog
	log     wire.LogID     // of the topic, once it was read
	letters map[int]Letter // by index in the positions
	sizes   map[int]int    // of their records, in bytes
	bytes   int            // of all of them
	end     int            // index of the first position that is left out
}

// located is an entry whose record is read, and the index of its position.
type located struct {
	Position
	entry
	i int
}

// find returns the entries of the positions, in the order of the log.
func (r *reading) find(positions []Position) (all []located) {
	r.letters, r.sizes = map[int]Letter{}, map[int]int{}
	r.c.mu.RLock()
	defer r.c.mu.RUnlock()
	for i, at := range positions {
		if e := r.c.index.find(at); e != nil {
			all = append(all, located{at, *e, i})
		}
	}
	slices.SortFunc(all, func(a, b located) int { return comparePositions(a.Position, b.Position) })
	return all
}

// read reads the first of the records, and those that follow without a gap. It returns the others.
func (r *reading) read(ctx context.Context, all []located) ([]located, error) {
	p := all[0].Partition
	n := slices.IndexFunc(all, func(w located) bool { return w.Partition != p })
	if n < 0 {
		n = len(all)
	}
	here, elsewhere := all[:n], all[n:]
	span := kafka.Span{Partition: p, First: here[0].Offset, End: here[n-1].Offset + 1, Log: r.log, MaxBytes: kafka.LittleBytes}
	_, err := kafka.Scan(ctx, r.c.log, r.c.topic, span, func(f wire.Fetched) error {
		r.log = wire.LogID{Topic: f.Log.Topic, Epoch: -1}
		for _, record := range f.Records {
			for ; len(here) > 0 && here[0].Offset <= record.Offset; here = here[1:] {
				if here[0].Offset == record.Offset {
					r.take(here[0], record)
				}
			}
		}
		for len(here) > 0 && here[0].Offset < f.Next {
			here = here[1:] // deleted
		}
		if len(here) > 0 && here[0].Offset > f.Next {
			return errStop
		}
		return nil
	})
	switch {
	case errors.Is(err, errStop):
		return all[n-len(here):], nil
	case errors.Is(err, kafka.ErrRecreated), errors.Is(err, kafka.ErrShorter):
		return elsewhere, nil // those here are deleted
	}
	return elsewhere, err
}

// take keeps a record if it is the one that was indexed: the topic may have been recreated since.
// If there are too many bytes, it leaves out the last positions.
func (r *reading) take(w located, record wire.RawRecord) {
	l := Read(w.Partition, messages([]wire.RawRecord{record})[0])
	if l.AppendedAt.UnixMilli() != w.at || r.c.index.hash(l.Key) != w.key || w.i >= r.end { //mutant:other-record-shown
		return
	}
	l.Resolution = resolutions[w.how]
	r.letters[w.i], r.sizes[w.i] = l, record.Size()
	for r.bytes += record.Size(); r.bytes > maxListing && len(r.letters) > 1; {
		r.end--
		r.bytes -= r.sizes[r.end]
		delete(r.letters, r.end)
	}
}

// OfOrder returns where the dead letters of an order, and their resolutions, are in a partition: the
// offsets that are in the catalog, in order, and next, the first offset that is not in it yet. Some
// offsets may belong to another order with the same hash. ok is false if the catalog does not have all
// dead letters below next. OfOrder reads no record.
func (c *Catalog) OfOrder(partition int, order string) (offsets []int64, next int64, ok bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	next = c.next[partition].Offset
	all := c.index.partitions[partition]
	if !c.state.Complete || all != nil && all.left > 0 {
		return nil, 0, false
	}
	if all == nil {
		return nil, next, true
	}
	hash := c.index.hash(order)
	for i := range all.n {
		if e := all.at(i); e.key == hash {
			if offsets = append(offsets, e.offset); e.resolved != 0 {
				offsets = append(offsets, e.resolved)
			}
		}
	}
	slices.Sort(offsets)
	return offsets, next, true
}

// Letter returns the dead letter at a position, or nil if there is none. If the catalog has not
// read the position yet, Letter reads the topic from there on.
func (c *Catalog) Letter(ctx context.Context, at Position) (*Letter, error) {
	found, err := c.Letters(ctx, []Position{at})
	if err != nil {
		return nil, err
	}
	if len(found.Letters) > 0 {
		return &found.Letters[0], nil
	}
	c.mu.RLock()
	next := c.next[at.Partition].Offset
	c.mu.RUnlock()
	if at.Offset < next {
		return nil, nil
	}
	return (&Topic{Log: c.log, Name: c.topic}).Find(ctx, at)
}
