package backlog

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/wire"
)

// StuckAfter is how overdue a record must be for its owner to count as stuck. A rebalance ends sooner.
const StuckAfter = 10 * time.Second

// OverdueLimit is how overdue a record may be before a person must act. A crash of the owner causes less.
const OverdueLimit = 30 * time.Second

// leaves returns when a record should leave its bucket, or the close topic if length is 0. A record without a valid due time becomes a dead letter at
// its release, which is at the end of the bucket at the latest.
func leaves(length time.Duration, m *wire.Message) time.Time {
	due, err := m.Due()
	switch {
	case length > 0 && err != nil:
		return m.Appended.Add(length)
	case length > 0:
		return orderclose.Bucket{Length: length}.Release(due, m.Appended)
	case err != nil || due.Before(m.Appended): // a copy is appended long after it was due
		return m.Appended
	}
	return due
}

// printable limits a time from a client to the range of RFC 3339.
func printable(t time.Time) time.Time {
	first, last := time.Unix(0, 0), time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)
	switch {
	case t.Before(first):
		t = first
	case t.After(last):
		t = last
	}
	return t.UTC()
}

// missingOffsets returns a text if the log does not have the committed offset, or "".
func missingOffsets(c kafka.Commit, logStart, end int64) string {
	switch {
	case c.Offset > end:
		return fmt.Sprintf("the log ends at %d, before the commit: the topic was deleted and recreated", end)
	case c.Offset >= 0 && c.Offset < logStart:
		return fmt.Sprintf("the log begins at %d, after the commit: %d offsets are gone", logStart, logStart-c.Offset)
	}
	return ""
}

// Behind is a partition with an overdue record.
type Behind struct {
	Topic     TopicStatus
	Partition PartitionStatus
	Count     int // the number of partitions that are overdue by more than the limit
}

// Overdue returns by how many seconds the most overdue record of the topic is overdue.
func (t TopicStatus) Overdue() (most float64) {
	for _, p := range t.Partitions {
		most = max(most, p.Overdue)
	}
	return most
}

// Head returns the record that leaves the topic first; nil if none waits.
func (t TopicStatus) Head() (first *Head) {
	for _, p := range t.Partitions {
		if p.Head != nil && (first == nil || p.Head.Leaves.Before(first.Leaves)) {
			first = p.Head
		}
	}
	return first
}

// FarthestDue returns how many seconds after now the latest due time lies that was read in the topic; 0 if no record is due later.
func (t TopicStatus) FarthestDue(now time.Time) (seconds float64) {
	for _, p := range t.Partitions {
		if !p.FarthestDue.IsZero() {
			seconds = max(seconds, p.FarthestDue.Sub(now).Seconds())
		}
	}
	return seconds
}

// Follow sets how fast the backlogs shrink, what the members move, and which of them are stuck, by a status that was read at most a minute
// before.
func (r Status) Follow(before Status) {
	took := r.At.Sub(before.At)
	moved, stands := map[string]float64{}, map[string]bool{} // how many records a second, and whether an overdue one stands, by the owner
	for _, t := range r.Topics {
		i := slices.IndexFunc(before.Topics, func(b TopicStatus) bool { return b.Topic == t.Topic && len(b.Partitions) == len(t.Partitions) })
		if i < 0 || took <= 0 || took > time.Minute {
			continue
		}
		for n := range t.Partitions {
			p, was := &t.Partitions[n], before.Topics[i].Partitions[n]
			p.PerSecond = max(0, float64(p.End-p.Waiting-was.End+was.Waiting)/took.Seconds())
			left, shrinks := p.Overdue, was.Overdue-p.Overdue // most records of a delay topic are not due
			if t.Closes {
				left, shrinks = float64(p.Waiting), float64(was.Waiting-p.Waiting)
			}
			if p.PerSecond > 0 && shrinks > 0 {
				p.CatchUp = left * took.Seconds() / shrinks
			}
		}
		// If no position of a topic moves, then all of its members are stuck, or none of them is.
		one := slices.ContainsFunc(t.Partitions, func(p PartitionStatus) bool { return p.PerSecond > 0 }) //mutant:all-members-stuck
		for n, p := range t.Partitions {
			if was := before.Topics[i].Partitions[n].Owner; p.Owner != nil && was != nil && p.Owner.ID == was.ID {
				name := MemberName(p.Owner)
				moved[name] += p.PerSecond
				stands[name] = stands[name] || one && p.Overdue >= StuckAfter.Seconds()
			}
		}
	}
	for i := range r.Members {
		m := &r.Members[i]
		m.PerSecond, m.Stuck = moved[m.Name], stands[m.Name] && moved[m.Name] == 0
	}
}

// Worst returns the most overdue partition, of those that do not catch up if there are any. It returns
// false if no partition is overdue by more than the limit.
func (r Status) Worst(limit time.Duration) (Behind, bool) {
	var worst Behind
	for _, t := range r.Topics {
		for _, p := range t.Partitions {
			if p.Overdue <= limit.Seconds() {
				continue
			}
			worst.Count++
			stands, stood := p.CatchUp == 0, worst.Partition.CatchUp == 0
			if worst.Count == 1 || stands && !stood || stands == stood && p.Overdue > worst.Partition.Overdue {
				worst.Topic, worst.Partition = t, p
			}
		}
	}
	return worst, worst.Count > 0
}

// Split returns the topics before the close, and those of the closers.
func (r Status) Split() (delays, closes []TopicStatus) {
	for _, t := range r.Topics {
		if t.Closes {
			closes = append(closes, t)
		} else {
			delays = append(delays, t)
		}
	}
	return delays, closes
}

// Problems counts the topics and partitions with a problem.
func (r Status) Problems() int {
	n, _ := r.FirstProblem()
	return n
}

// Record returns the most overdue record.
func (o Behind) Record() *Head {
	if o.Partition.Late != nil {
		return o.Partition.Late
	}
	return o.Partition.Head
}

// Next says what to do, for the most likely cause.
func (o Behind) Next() string {
	part, glance := "relay", "see orderclose runbook "+o.Runbook()
	if o.Topic.Closes {
		part = "closer"
	}
	switch speed := math.Ceil(o.Partition.PerSecond); {
	case o.Partition.CatchUp > 0:
		return fmt.Sprintf("it is catching up, %.0f records a second, and needs about %.0f s", speed, math.Ceil(o.Partition.CatchUp))
	case o.Partition.Owner != nil && speed > 0:
		return fmt.Sprintf("its owner %s moves %.0f records a second, and the backlog does not shrink: %s", MemberName(o.Partition.Owner), speed, glance)
	case o.Partition.Owner != nil:
		return fmt.Sprintf("its owner %s does not move the record: its /-/ready and its log say what it waits for; %s", MemberName(o.Partition.Owner), glance)
	case o.Topic.Members == 0:
		return fmt.Sprintf("no %s is running: start one with orderclose run %s; %s", part, part, glance)
	}
	return fmt.Sprintf("the group is %s and the partition has no owner: check again in 10 s; if it has none then, %s", o.Topic.State, glance)
}

// Runbook returns the section of the runbook, as the end of its URL.
func (o Behind) Runbook() string {
	if o.Topic.Closes {
		return "the-closer-is-behind"
	}
	return "records-do-not-leave-a-delay-topic"
}

// MemberName returns the client id of a member, which names role, host, process and port, or else the client id and the host; "" for none.
func MemberName(m *kafka.Member) string {
	if m == nil {
		return ""
	}
	if NamesHost(m) { // the host of the connection may be a proxy's
		return m.ClientID
	}
	return m.ClientID + "@" + m.Host
}

// NamesHost reports whether the client id of a member names its host, as that of each process of orderclose does.
func NamesHost(m *kafka.Member) bool { return strings.Contains(m.ClientID, "@") }

// Worst returns the most overdue partition of the member in r, and its topic.
func (m Member) Worst(r Status) (worst PartitionStatus, where TopicStatus) {
	for _, t := range r.Topics {
		for _, p := range t.Partitions {
			if p.Owner != nil && MemberName(p.Owner) == m.Name && p.Overdue > worst.Overdue {
				worst, where = p, t
			}
		}
	}
	return worst, where
}

// FirstProblem counts the topics and partitions with a problem, and describes the first.
func (r Status) FirstProblem() (n int, first string) {
	for _, t := range r.Topics {
		if t.Problem != "" {
			n++
			first = cmp.Or(first, t.Topic+": "+t.Problem)
		}
		for _, p := range t.Partitions {
			if p.Problem != "" {
				n++
				first = cmp.Or(first, fmt.Sprintf("%s/%d: %s", t.Topic, p.Partition, p.Problem))
			}
		}
	}
	return n, first
}
