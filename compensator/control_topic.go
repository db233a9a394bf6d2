package compensator

import (
	"context"
	"encoding/json"
	"time"

	"github.com/orderclose/orderclose/internal/wire"
)

// controlCommitInterval is the time between two commits of the position in the control
// topic while there are no losses.
const controlCommitInterval = 10 * time.Minute

// controlTopic reads notices of losses from the control topic. All processes share the
// committed position of the group. It passes a notice only after a process has dealt with
// the loss. A missing commit means that the topic was deleted and recreated,
// which is a loss like any other. A controlTopic belongs to one goroutine.
type controlTopic struct {
	kafka       Kafka
	group, name string
	started     bool       // a position was read before
	next        int64      // offset of the next read
	log         wire.LogID // the log that next is an offset of; zero: the current log
	committedAt time.Time  // when the position was last committed
	unhandled   unhandled
}

// unhandled says which notices were read and not dealt with yet.
type unhandled struct {
	end      int64 // offset after the last notice in the topic; 0: none
	lost     bool  // the control topic itself has lost records
	position int64 // if lost: the committed position when the loss was noticed; negative: none
}

// poll returns the new notices. They are valid also if there is an error, and are not
// returned again.
func (t *controlTopic) poll(ctx context.Context) ([]notice, error) {
	position, err := t.kafka.Position(ctx, t.group, t.name, 0)
	if err != nil {
		return nil, err
	}
	first, end, err := t.kafka.Bounds(ctx, t.name, 0)
	if err != nil {
		return nil, err
	}
	var notices []notice
	if reason := t.locate(position, first, end); reason != "" {
		notices = append(notices, t.lostRecords(reason, position))
	}
	// Commit a first position, so that a deletion of the topic is noticed later. After a loss of the
	// topic itself only handleLosses commits.
	if position < 0 && !t.unhandled.lost {
		if err := t.commit(ctx); err != nil {
			return notices, err
		}
	}
	for t.next < end {
		f, err := t.kafka.Read(ctx, wire.Position{Topic: t.name, Offset: t.next, Log: t.log})
		if err != nil {
			return notices, err
		}
		if f.Lost != nil {
			notices = append(notices, t.lostRecords(f.Lost.Err.Error(), position))
		}
		if f.Corrupt != nil { // there may have been a notice
			notices = append(notices, t.lostRecords(f.Corrupt.Err.Error(), position))
		}
		t.log = f.Log
		if f.Next == t.next && f.Lost == nil {
			break // the records exist but cannot be read yet
		}
		t.next = f.Next
		for _, record := range f.Records {
			if string(record.Key()) == wire.KeyLost {
				notices = append(notices, decodeNotice(record))
				t.unhandled.end = record.Offset + 1
			}
		}
	}
	if t.unhandled == (unhandled{}) && time.Since(t.committedAt) > controlCommitInterval {
		return notices, t.commit(ctx)
	}
	return notices, nil
}

// locate sets where reading continues, from the committed position and the bounds of
// the log. It returns why records may be lost, or "".
func (t *controlTopic) locate(position, first, end int64) (reason string) {
	switch {
	case !t.started && position >= 0:
		t.next = position
	case !t.started:
		t.next = first
	case position < 0 && !t.noticedWithoutCommit(): // a position was committed, and is gone with its topic
		reason = "the control topic was deleted and recreated"
	}
	t.started = true
	if reason == "" && (t.next > end || t.next < first) {
		reason = "the control topic was deleted and recreated, or has lost records"
	}
	if reason != "" {
		t.next, t.log = first, wire.LogID{}
	}
	return reason
}

// noticedWithoutCommit reports whether a loss of the control topic is unhandled that was noticed while
// there was no commit.
func (t *controlTopic) noticedWithoutCommit() bool {
	return t.unhandled.lost && t.unhandled.position < 0
}

// lostRecords returns the notice that the control topic itself has lost records. The
// committed position stays until a process has dealt with the loss.
func (t *controlTopic) lostRecords(reason string, position int64) notice {
	t.unhandled = unhandled{lost: true, position: position}
	return notice{Lost: wire.Lost{Topic: t.name, Reason: reason}}
}

// decodeNotice returns the notice in a record of the control topic. An unreadable
// record counts as a loss of unknown extent.
func decodeNotice(record wire.RawRecord) notice {
	n := notice{wire.Lost{Reason: "the record of the loss is unreadable"}, record.AppendedAt()}
	if m, err := record.Message(); err == nil {
		_ = json.Unmarshal(m.Value, &n.Lost)
	}
	return n
}

// stillUnhandled reports, under the lock, whether the notices still have to be dealt with:
// no other process has committed a position after them. If the control topic itself has
// lost records, it may be empty. Then the notices are unhandled while the position is
// unchanged.
func (t *controlTopic) stillUnhandled(ctx context.Context) (bool, error) {
	position, err := t.kafka.Position(ctx, t.group, t.name, 0)
	if err != nil {
		return false, err
	}
	_, end, err := t.kafka.Bounds(ctx, t.name, 0) // read after the position: another process may have read further than this one
	if err != nil {
		return false, err
	}
	unmoved := t.unhandled.lost && position == t.unhandled.position
	if position < t.unhandled.end || position > end || unmoved {
		return true, nil
	}
	if t.unhandled.lost {
		// The other process read the current log, which may not be the log that this
		// one noticed: the topic may have been recreated once more since.
		t.next, t.log = position, wire.LogID{}
	}
	return false, nil
}

// commit commits the position, so that no process deals with the notices before it.
func (t *controlTopic) commit(ctx context.Context) error {
	t.committedAt = time.Now()
	return t.kafka.SetPosition(ctx, t.group, t.name, 0, t.next)
}
