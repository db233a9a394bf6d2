package ops

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/orderclose/orderclose/internal/wire"
)

// Every part may write the control topic, so these bound what its records cost a reader. A sweep with all its failures has 50 KB.
const (
	// controlKeeps is how many sweeps a Control remembers: the newest. Sweeps of each hour of a week are 168.
	controlKeeps = 500
	// controlProcesses is how many processes a Control remembers: those that have announced themselves last.
	controlProcesses = 1000
	// controlBytes bounds the records of each kind that a Control remembers. Decoded they take some four times as much memory.
	controlBytes = 4 << 20
	// processName bounds the name of a process, in bytes: a host name has 255 at most.
	processName = 300
)

// ControlLog is what a Control needs of Kafka. Cluster of internal/kafka implements it.
type ControlLog interface {
	Bounds(ctx context.Context, topic string, partition int) (first, end int64, err error)
	Read(ctx context.Context, at wire.Position) (wire.Fetched, error)
}

// Control reads the control topic. It remembers its position, so that each Read reads only what was appended since the last one. The first Read reads
// everything: a week of records, most of them probes of the brokers' clock, six a minute for each relay and closer. Make a Control with NewControl. It
// is safe for concurrent use.
type Control struct {
	log   ControlLog
	topic string

	turn      chan struct{} // holds a token while a Read runs, which owns the fields below
	next      int64         // offset of the next read
	logID     wire.LogID    // the log that next is an offset of
	known     bool          // next is known
	sweeps    newest[wire.Sweep]
	processes newest[Process] // that have announced themselves
}

// newest are the last values that were added, the oldest first: at most so many, of controlBytes at most.
type newest[T any] struct {
	all   []T
	sizes []int // of the records
	bytes int
}

func (n *newest[T]) add(value T, size, most int) {
	n.all, n.sizes, n.bytes = append(n.all, value), append(n.sizes, size), n.bytes+size
	for len(n.all) > most || n.bytes > controlBytes {
		n.remove(0)
	}
}

func (n *newest[T]) remove(i int) {
	n.bytes -= n.sizes[i]
	n.all, n.sizes = slices.Delete(n.all, i, i+1), slices.Delete(n.sizes, i, i+1)
}

// NewControl returns a Control for the topic with that name.
func NewControl(log ControlLog, topic string) *Control {
	return &Control{log: log, topic: topic, turn: make(chan struct{}, 1)}
}

// ControlState is what the records of the control topic say.
type ControlState struct {
	Sweeps []wire.Sweep // newest first, at most 500
	// Processes have announced themselves within a day, at most 1,000. Their State is not set.
	Processes []Process
}

// Read returns what the topic says at now. If the topic was deleted and recreated, or has lost records that were not read yet, it forgets what it knew
// and reads everything again. It skips a record that it cannot decode. After an error the next Read continues where this one ended.
func (c *Control) Read(ctx context.Context, now time.Time) (ControlState, error) {
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return ControlState{}, fmt.Errorf("read topic %s: %w", c.topic, ctx.Err())
	}
	if err := c.catchUp(ctx); err != nil {
		return ControlState{}, fmt.Errorf("read topic %s: %w", c.topic, err)
	}
	return c.state(now), nil
}

// maxRestarts is how often one Read begins at the start of the log. More means that the log is replaced all the time.
const maxRestarts = 3

// catchUp reads the topic to its end.
func (c *Control) catchUp(ctx context.Context) error {
	for range maxRestarts {
		first, end, err := c.log.Bounds(ctx, c.topic, 0)
		if err != nil {
			return err
		}
		if !c.known || c.next < first || c.next > end {
			c.restart(first)
		}
		if replaced, err := c.readTo(ctx, end); err != nil || !replaced {
			return err
		}
		c.known = false
	}
	return errors.New("the topic was deleted and recreated while it was read")
}

// restart forgets everything, and continues at the start of the log.
func (c *Control) restart(first int64) {
	c.next, c.logID, c.known = first, wire.LogID{}, true
	c.sweeps, c.processes = newest[wire.Sweep]{}, newest[Process]{}
}

// readTo reads up to the offset end. It returns true, without reading on, if the log is not the one
// that was read before, or no longer has the next offset.
func (c *Control) readTo(ctx context.Context, end int64) (replaced bool, err error) {
	for c.next < end {
		f, err := c.log.Read(ctx, wire.Position{Topic: c.topic, Offset: c.next, Log: c.logID})
		if err != nil {
			return false, err
		}
		for _, r := range f.Records {
			c.add(r)
		}
		if f.Free != nil {
			f.Free()
		}
		if f.Lost != nil {
			return true, nil
		}
		if f.Next <= c.next {
			return false, nil // the records exist but cannot be read yet
		}
		c.next, c.logID = f.Next, f.Log
	}
	return false, nil
}

// add remembers what one record says. It decodes none that the topic would refuse today.
func (c *Control) add(r wire.RawRecord) {
	if len(r.Key()) == 0 || len(r.Body) > wire.MaxControl { // a probe of a clock, as most records are
		return
	}
	m, err := r.Message()
	if err != nil {
		return
	}
	switch string(m.Key) {
	case wire.KeySweep:
		s, err := wire.DecodeSweep(m.Value)
		again := func(o wire.Sweep) bool { return o.StartedAt.Equal(s.StartedAt) && o.Holder == s.Holder }
		if err == nil && !slices.ContainsFunc(c.sweeps.all, again) { // an append without an answer is repeated
			c.sweeps.add(s, len(r.Body), controlKeeps)
		}
	case wire.KeyProcess:
		var p wire.Process
		if json.Unmarshal(m.Value, &p) == nil && len(p.Name) <= processName && len(p.Failing) <= wire.MaxEntries {
			c.addProcess(p, m.Appended.UTC(), len(r.Body))
		}
	}
}

// addProcess remembers a process in place of what it said before.
func (c *Control) addProcess(p wire.Process, at time.Time, size int) {
	now := Process{Process: p, Started: at, Announced: at}
	if i := slices.IndexFunc(c.processes.all, func(o Process) bool { return o.Name == p.Name }); i >= 0 {
		now.Started = c.processes.all[i].Started
		c.processes.remove(i)
	}
	c.processes.add(now, size, controlProcesses)
}

// state returns what is known, at now.
func (c *Control) state(now time.Time) (s ControlState) {
	for _, p := range c.processes.all {
		if now.Sub(p.Announced) <= expectedFor {
			s.Processes = append(s.Processes, p)
		}
	}
	s.Sweeps = slices.Clone(c.sweeps.all)
	slices.Reverse(s.Sweeps)
	// A sweep whose append failed is recorded behind later ones.
	slices.SortStableFunc(s.Sweeps, func(a, b wire.Sweep) int { return b.StartedAt.Compare(a.StartedAt) })
	return s
}
