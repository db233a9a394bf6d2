package reads

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

// fetcher returns its answers one after the other, and then always the last.
type fetcher struct {
	answers []wire.Fetched
	asked   []wire.Position
}

func (f *fetcher) Read(_ context.Context, at wire.Position) (wire.Fetched, error) {
	f.asked = append(f.asked, at)
	a := f.answers[0]
	if len(f.answers) > 1 {
		f.answers = f.answers[1:]
	}
	return a, nil
}

func records(offsets ...int64) wire.Fetched {
	f := wire.Fetched{}
	for _, o := range offsets {
		f.Records, f.Next = append(f.Records, wire.RawRecord{Offset: o}), o+1
	}
	return f
}

func TestScan_EndsWithTheSpan(t *testing.T) {
	first := records(5, 6)
	first.Log.Topic = [16]byte{1}
	log := &fetcher{answers: []wire.Fetched{first, {Next: 7}, {Next: 7}, records(7, 8, 9), {}}}
	n := 0
	read, err := Scan(t.Context(), log, "t", Span{First: 5, End: 9}, func(f wire.Fetched) error {
		n += len(f.Records)
		return nil
	})
	expect.That(t, read == 9 && n == 4 && err == nil, "read to %d, %d records, %v; want 9, 4", read, n, err)
	if was := log.asked; was[0].Log != (wire.LogID{}) || was[1].Log != first.Log || was[1].Offset != 7 {
		t.Errorf("read at %+v: want each read to use the log of the previous read", was)
	}
}

// TestScan_StopsAtRecreatedOrShorterLog that changes while it is read.
func TestScan_StopsAtRecreatedOrShorterLog(t *testing.T) {
	lost := &wire.Range{First: 0, Last: 6, Err: errors.New("the log ends at 3")}
	for want, last := range map[error]wire.Fetched{
		ErrRecreated: {Next: 0, Lost: lost, Replaced: true},
		ErrShorter:   {Next: 7},
	} {
		log := &fetcher{answers: []wire.Fetched{records(5, 6), last}}
		read, err := Scan(t.Context(), log, "t", Span{First: 5, End: 9}, func(wire.Fetched) error { return nil })
		expect.That(t, read == 7 && errors.Is(err, want) && len(log.asked) <= 1+maxIdleFetches,
			"read to %d after %d fetches: %v; want 7, %v", read, len(log.asked), err, want)
	}
}

// TestPeek_ReturnsNextRecord reads a log of two batches, each followed by a transaction
// marker: records 0, 1 and 2, a marker at 3, record 4, and a marker at 5.
func TestPeek_ReturnsNextRecord(t *testing.T) {
	broker := must.Get(kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "t")))(t)
	defer broker.Close()
	cluster := must.Get(kafka.New(kafka.Options{Brokers: broker.ListenAddrs()}))(t)
	defer cluster.Close()
	c := Log{cluster}
	produceTransactions(t, broker.ListenAddrs(), 3, 1)
	for _, want := range []struct{ offset, end, found int64 }{
		{0, 6, 0}, {1, 6, 1}, {2, 3, 2}, {3, 6, 4}, {3, 4, -1}, {4, 6, 4}, {5, 6, -1}, {6, 6, -1},
	} {
		m, err := c.Peek(t.Context(), "t", 0, want.offset, want.end)
		if err != nil {
			t.Errorf("in [%d, %d): %v", want.offset, want.end, err)
			continue
		}
		found := int64(-1)
		if m != nil {
			found = m.Offset
			expect.That(t, string(m.Key) == fmt.Sprint("key-", found) && !m.Appended.IsZero(), "in [%d, %d): %+v", want.offset, want.end, m)
		}
		expect.Equal(t, found, want.found, "in [%d, %d): found", want.offset, want.end)
	}
	expect.Says(t, expect.Err(c.Peek(t.Context(), "t", 0, 17, 20)), "t/0 at 17", "past the end")
}

// produceTransactions commits one transaction per count, with that many records in one batch. The key of a record contains its offset.
func produceTransactions(t *testing.T, brokers []string, counts ...int) {
	t.Helper()
	client := must.Get(kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.TransactionalID("tx"), kgo.ManualFlushing()))(t)
	defer client.Close()
	offset := 0
	for _, n := range counts {
		must.Do(t, client.BeginTransaction())
		for range n {
			client.Produce(context.Background(), &kgo.Record{Topic: "t", Key: fmt.Append(nil, "key-", offset), Value: make([]byte, 2000)}, nil)
			offset++
		}
		must.Do(t, client.Flush(t.Context()))
		must.Do(t, client.EndTransaction(t.Context(), kgo.TryCommit))
		offset++ // the marker
	}
}

func TestPeek_MalformedRecordKeepsOffset(t *testing.T) {
	m, _ := (wire.RawRecord{Offset: 7, Appended: 1_700_000_000_000, Body: []byte{0x7f}}).Message()
	expect.That(t, m.Offset == 7 && m.Appended.UnixMilli() == 1_700_000_000_000 && m.Key == nil, "%+v", m)
}
