package status

import (
	"fmt"
	"time"

	"orderclose"
	"orderclose/internal/kafka"
)

// OverdueLimit is how long overdue a record may be before somebody has to look: a
// crash of its owner costs less.
const OverdueLimit = 30 * time.Second

// leaves returns when a record is to leave its bucket, or the close topic if the
// length is 0. A record that cannot be read goes to the dead letters when its
// turn has come, which is at the end of the bucket at the latest.
func leaves(length time.Duration, m *orderclose.Message) time.Time {
	due, err := m.Due()
	switch {
	case length > 0 && err != nil:
		return m.Appended.Add(length)
	case length > 0:
		return orderclose.Bucket{Length: length}.Release(due, m.Appended)
	case err != nil || due.Before(m.Appended): // a replay was due long before it was appended
		return m.Appended
	}
	return due
}

// unreadFrom returns from which append time on the records of a bucket need not be
// in memory yet. What was appended before belongs in the window; brokers stamp whole
// milliseconds.
func unreadFrom(length time.Duration, now time.Time) time.Time {
	return now.Add(-orderclose.Bucket{Length: length}.Unread()).Truncate(time.Millisecond).Add(time.Millisecond)
}

// sane brings a moment that a client made up within what RFC 3339 can say.
func sane(t time.Time) time.Time {
	first, last := time.Unix(0, 0), time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)
	switch {
	case t.Before(first):
		t = first
	case t.After(last):
		t = last
	}
	return t.UTC()
}

// gap says that the log does not have the offset where reading goes on, or "".
func gap(c kafka.Commit, logStart, end int64) string {
	switch {
	case c.OldLog:
		return "the commit is of a topic that was deleted and recreated since: no relay or closer has read the new one"
	case c.Offset > end:
		return fmt.Sprintf("the log ends at %d, before the commit: the topic was deleted and recreated", end)
	case c.Offset >= 0 && c.Offset < logStart:
		return fmt.Sprintf("the log begins at %d, after the commit: %d offsets are gone", logStart, logStart-c.Offset)
	}
	return ""
}

// Overdue is a partition with a record that should have left by now.
type Overdue struct {
	Topic     Topic
	Partition Partition
	Count     int // of all partitions that are overdue by more than the limit
}

// Overdue is by how much the record that is overdue the most is overdue, in seconds.
func (t Topic) Overdue() (most float64) {
	for _, p := range t.Partitions {
		most = max(most, p.Overdue)
	}
	return most
}

// Worst returns the partition that is overdue the most, and whether any is by
// more than the limit.
func (r Report) Worst(limit time.Duration) (Overdue, bool) {
	var worst Overdue
	for _, t := range r.Topics {
		for _, p := range t.Partitions {
			if p.Overdue <= limit.Seconds() {
				continue
			}
			worst.Count++
			if p.Overdue > worst.Partition.Overdue {
				worst.Topic, worst.Partition = t, p
			}
		}
	}
	return worst, worst.Count > 0
}

// Problems counts the topics and partitions with a problem.
func (r Report) Problems() int {
	n := 0
	for _, t := range r.Topics {
		if t.Problem != "" {
			n++
		}
		for _, p := range t.Partitions {
			if p.Problem != "" {
				n++
			}
		}
	}
	return n
}

// Record is the record that is overdue the most.
func (o Overdue) Record() *Head {
	if o.Partition.Late != nil {
		return o.Partition.Late
	}
	return o.Partition.Head
}

// Next says what to do about it, most likely cause first.
func (o Overdue) Next() string {
	part, section := "relay", "Records do not leave a delay topic"
	if o.Topic.close {
		part, section = "closer", "The closer is behind"
	}
	see := fmt.Sprintf("see %q in docs/runbook.md", section)
	switch {
	case o.Partition.Owner != nil:
		return fmt.Sprintf("its owner %s does not move it: %s", Name(o.Partition.Owner), see)
	case o.Topic.Members == 0:
		return fmt.Sprintf("no %s is running: start one with orderclose run %s; %s", part, part, see)
	}
	return fmt.Sprintf("the group is %s and nobody owns it: look again in 10 s; if it stays so, %s", o.Topic.State, see)
}

// Name is how people name a member; "" for none.
func Name(m *kafka.Member) string {
	if m == nil {
		return ""
	}
	return m.ClientID + "@" + m.Host
}
