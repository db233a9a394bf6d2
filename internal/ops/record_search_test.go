package ops

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/wire"
)

// recordsLog holds topics of two partitions in memory.
type recordsLog struct {
	Log
	records map[string]map[int][]wire.RawRecord
}

func (l *recordsLog) put(topic, id string, appended, release time.Time) {
	m, err := wire.Record{Order: orderclose.Order{ID: id, CreatedAt: appended, Due: release}, Release: release}.Encode()
	if err != nil {
		panic(err)
	}
	if l.records[topic] == nil {
		l.records[topic] = map[int][]wire.RawRecord{}
	}
	p := kafka.PartitionOf([]byte(id), 2)
	m.Offset, m.Appended = int64(len(l.records[topic][p])), appended
	l.records[topic][p] = append(l.records[topic][p], m.Raw())
}

func (l *recordsLog) Partitions(context.Context, string) (int, error) { return 2, nil }

func (l *recordsLog) Commits(_ context.Context, _, _ string, n int) ([]kafka.Commit, error) {
	return slices.Repeat([]kafka.Commit{{Offset: -1}}, n), nil
}

func (l *recordsLog) Bounds(_ context.Context, topic string, p int) (first, end int64, err error) {
	return 0, int64(len(l.records[topic][p])), nil
}

func (l *recordsLog) OffsetAt(_ context.Context, topic string, p int, t time.Time) (int64, error) {
	for i, r := range l.records[topic][p] {
		if !r.AppendedAt().Before(t) {
			return int64(i), nil
		}
	}
	return int64(len(l.records[topic][p])), nil
}

func (l *recordsLog) Read(_ context.Context, at wire.Position) (wire.Fetched, error) {
	records := l.records[at.Topic][at.Partition][at.Offset:]
	records = records[:min(len(records), 10)]
	return wire.Fetched{Records: records, Next: at.Offset + int64(len(records))}, nil
}

var now = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// backlog returns a delay topic with n overdue records in the order in which their orders were created.
func backlog(n int) *recordsLog {
	l := &recordsLog{records: map[string]map[int][]wire.RawRecord{}}
	for i := range n {
		l.put("delay_5m", fmt.Sprint("o", i), now.Add(time.Duration(i)*time.Second), now.Add(5*time.Minute+time.Duration(i)*time.Second))
	}
	return l
}

// TestSearchTopics_ACheckoutWhoseClockIsAhead hides no waiting record, even where the limit does not allow all of them to be read.
func TestSearchTopics_ACheckoutWhoseClockIsAhead(t *testing.T) {
	search := func(log Log, id string, created time.Time, limit int64) HistoryTopic {
		topics := []HistoryTopic{{Topic: "delay_5m", Kind: KindBucket, Group: "r", Length: 5 * time.Minute}}
		return SearchTopics(t.Context(), log, topics, id, SearchLimit{Records: limit, Since: created})[0]
	}
	for _, ahead := range []time.Duration{0, 2 * time.Minute, time.Hour} {
		for _, limit := range []int64{1_000_000, 5000} {
			log := backlog(10_000)
			appended := now.Add(10_000 * time.Second)
			log.put("delay_5m", "o", appended, appended.Add(ahead+5*time.Minute))
			for i := range 200 { // the record is not at the end of its partition
				log.put("delay_5m", fmt.Sprint("later", i), appended.Add(time.Duration(i)*time.Second), appended.Add(ahead+5*time.Minute))
			}
			found := search(log, "o", appended.Add(ahead), limit)
			expect.That(t, len(found.Records) == 1 && found.Records[0].Waits, "ahead by %v, with a limit of %d: %+v", ahead, limit, found)
			expect.Equal(t, len(search(log, "other", appended.Add(ahead), limit).Records), 0, "records of another order")
		}
	}
	found := search(backlog(1000), "o7", now.Add(24*time.Hour), 1000) // in the right zone, on the wrong day
	expect.That(t, len(found.Records) == 1, "a day ahead: %+v", found)
}
