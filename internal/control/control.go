// Package control has the records of the control topic, and reads them: the processes of a pipeline, and its compensations.
package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/orderclose/orderclose/internal/wire"
)

// Every part may write the control topic, so these bound what its records cost a reader. A sweep with all its failures has 50 KB.
const (
	// controlKeeps is how many sweeps a Reader remembers: the newest. Sweeps of each hour of a week are 168.
	controlKeeps = 500
	// controlProcesses is how many processes a Reader remembers: those that have announced themselves last.
	controlProcesses = 1000
	// controlBytes bounds the records of each kind that a Reader remembers. Decoded they take some four times as much memory.
	controlBytes = 4 << 20
	// processName bounds the name of a process, in bytes: a host name has 255 at most.
	processName = 300
)

// Log is what a Reader needs of Kafka. Cluster of internal/kafka implements it.
type Log interface {
	Bounds(ctx context.Context, topic string, partition int) (first, end int64, err error)
	Read(ctx context.Context, at wire.Position) (wire.Fetched, error)
}

// Reader reads the control topic. It remembers its position, so that each Read reads only what was appended since the last one. The first Read reads
// everything: a week of records, most of them probes of the brokers' clock, six a minute for each relay and closer. Make one with New. It
// is safe for concurrent use.
type Reader struct {
	log   Log
	topic string

	turn      chan struct{} // holds a token while a Read runs, which owns the fields below
	next      int64         // offset of the next read
	logID     wire.LogID    // the log that next is an offset of
	known     bool          // next is known
	sweeps    newest[Sweep]
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

// New returns a Reader for the topic with that name.
func New(log Log, topic string) *Reader {
	return &Reader{log: log, topic: topic, turn: make(chan struct{}, 1)}
}

// State is what the records of the control topic say.
type State struct {
	Sweeps []Sweep // newest first, at most 500
	// Processes have announced themselves within a day, at most 1,000. Their State is not set.
	Processes []Process
}

// Read returns what the topic says at now. If the topic was deleted and recreated, or has lost records that were not read yet, it forgets what it knew
// and reads everything again. It skips a record that it cannot decode. After an error the next Read continues where this one ended.
func (c *Reader) Read(ctx context.Context, now time.Time) (State, error) {
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return State{}, fmt.Errorf("read topic %s: %w", c.topic, ctx.Err())
	}
	if err := c.catchUp(ctx); err != nil {
		return State{}, fmt.Errorf("read topic %s: %w", c.topic, err)
	}
	return c.state(now), nil
}

// maxRestarts is how often one Read begins at the start of the log. More means that the log is replaced all the time.
const maxRestarts = 3

// catchUp reads the topic to its end.
func (c *Reader) catchUp(ctx context.Context) error {
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
func (c *Reader) restart(first int64) {
	c.next, c.logID, c.known = first, wire.LogID{}, true
	c.sweeps, c.processes = newest[Sweep]{}, newest[Process]{}
}

// readTo reads up to the offset end. It returns true, without reading on, if the log is not the one
// that was read before, or no longer has the next offset.
func (c *Reader) readTo(ctx context.Context, end int64) (replaced bool, err error) {
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
func (c *Reader) add(r wire.RawRecord) {
	if len(r.Key()) == 0 || len(r.Body) > MaxRecord { // a probe of a clock, as most records are
		return
	}
	m, err := r.Message()
	if err != nil {
		return
	}
	switch string(m.Key) {
	case KeySweep:
		s, err := DecodeSweep(m.Value)
		again := func(o Sweep) bool { return o.StartedAt.Equal(s.StartedAt) && o.Holder == s.Holder }
		if err == nil && !slices.ContainsFunc(c.sweeps.all, again) { // an append without an answer is repeated
			c.sweeps.add(s, len(r.Body), controlKeeps)
		}
	case KeyProcess:
		var p Announcement
		if json.Unmarshal(m.Value, &p) == nil && len(p.Name) <= processName && len(p.FailingSince) <= MaxEntries {
			c.addProcess(p, m.Appended.UTC(), len(r.Body))
		}
	}
}

// addProcess remembers a process in place of what it said before.
func (c *Reader) addProcess(p Announcement, at time.Time, size int) {
	now := Process{Announcement: p, Started: at, Announced: at}
	if i := slices.IndexFunc(c.processes.all, func(o Process) bool { return o.Name == p.Name }); i >= 0 {
		now.Started = c.processes.all[i].Started
		c.processes.remove(i)
	}
	c.processes.add(now, size, controlProcesses)
}

// state returns what is known, at now.
func (c *Reader) state(now time.Time) (s State) {
	for _, p := range c.processes.all {
		if now.Sub(p.Announced) <= expectedFor {
			s.Processes = append(s.Processes, p)
		}
	}
	s.Sweeps = slices.Clone(c.sweeps.all)
	slices.Reverse(s.Sweeps)
	// A sweep whose append failed is recorded behind later ones.
	slices.SortStableFunc(s.Sweeps, func(a, b Sweep) int { return b.StartedAt.Compare(a.StartedAt) })
	return s
}

const (
	// expectedFor is how long after its last record a process is expected to run. So one that was killed
	// is shown as gone for a day, unless another one takes its place.
	expectedFor = 24 * time.Hour
	// joinsWithin is how long a process may take from its start until it is a member of its groups.
	joinsWithin = 30 * time.Second
)

// ProcessState says whether a process runs.
type ProcessState string

// The states of a process.
const (
	Present ProcessState = "present" // it is a member of a group, or has just announced itself
	Frozen  ProcessState = "frozen"  // it is a member, and its positions stand while records are overdue
	Gone    ProcessState = "gone"    // it is no member of any group, and has not said that it stops
)

// Process is a process that runs parts of the pipeline.
type Process struct {
	Announcement
	State     ProcessState `json:"state"`
	Started   time.Time    `json:"started_at,omitzero"`   // its first record of the last week; zero: it has none
	Announced time.Time    `json:"announced_at,omitzero"` // when it last announced itself, by the brokers' clock; zero: it never did
	Seen      time.Time    `json:"last_seen_at,omitzero"` // when it was last seen in a group or announced itself; zero: not since it started
}

// Compare compares what processes have announced with the members of groups. It is a pure function.
func Compare(announced []Process, members []string, now time.Time) (all []Process) {
	for _, p := range announced {
		p.Seen = p.Announced
		switch {
		case slices.Contains(members, p.Name):
			p.State, p.Seen = Present, now
		case p.Ended || now.Sub(p.Announced) > expectedFor: //mutant:stopped-shown-gone
			continue
		case now.Sub(p.Announced) < max(joinsWithin, 2*time.Duration(p.EverySeconds)*time.Second):
			p.State = Present
		case slices.ContainsFunc(announced, func(o Process) bool { return o.Started.After(p.Announced) && place(o.Name) == place(p.Name) }):
			continue // another process has taken its place
		default:
			p.State = Gone
			if p.EverySeconds == 0 {
				p.Seen = time.Time{} // it announced itself only when it started
			}
		}
		all = append(all, p)
	}
	for _, name := range members {
		// of an older version, or without the right to announce itself
		if strings.Contains(name, "@") && !slices.ContainsFunc(all, func(p Process) bool { return p.Name == name }) {
			all = append(all, Process{Announcement: Announcement{Name: name}, State: Present, Seen: now})
		}
	}
	slices.SortFunc(all, func(a, b Process) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// place returns the name of a process without its process id.
func place(name string) string {
	host, process, _ := strings.Cut(name, ":")
	_, port, _ := strings.Cut(process, ":")
	return host + ":" + port
}
