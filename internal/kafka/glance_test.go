package kafka

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/orderclose/orderclose/internal/wire"
)

// TestPeek_ReturnsNextRecord reads a log of two batches, each followed by a transaction
// marker: records 0, 1 and 2, a marker at 3, record 4, and a marker at 5.
func TestPeek_ReturnsNextRecord(t *testing.T) {
	broker, c := newFake(t, 1)
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
			if string(m.Key) != fmt.Sprint("key-", found) || m.Appended.IsZero() {
				t.Errorf("in [%d, %d): %+v", want.offset, want.end, m)
			}
		}
		if found != want.found {
			t.Errorf("in [%d, %d): found %d, want %d", want.offset, want.end, found, want.found)
		}
	}
	if _, err := c.Peek(t.Context(), "t", 0, 17, 20); err == nil || !strings.Contains(err.Error(), "t/0 at 17") {
		t.Errorf("past the end: %v", err)
	}
}

// produceTransactions commits one transaction per count, with that many records in one batch.
// The key of a record contains its offset.
func produceTransactions(t *testing.T, brokers []string, counts ...int) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.TransactionalID("tx"), kgo.ManualFlushing())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	offset := 0
	for _, n := range counts {
		if err := client.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		for range n {
			client.Produce(context.Background(), &kgo.Record{Topic: "t", Key: fmt.Append(nil, "key-", offset), Value: make([]byte, 2000)}, nil)
			offset++
		}
		if err := client.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := client.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
			t.Fatal(err)
		}
		offset++ // the marker
	}
}

func TestFirstWaiting_StaysWithinLog(t *testing.T) {
	for _, c := range []struct{ commit, start, end, want int64 }{
		{-1, 5, 9, 5}, {3, 5, 9, 5}, {5, 5, 9, 5}, {7, 5, 9, 7}, {9, 5, 9, 9}, {10, 5, 9, 5}, {-1, 0, 0, 0},
	} {
		if got := FirstWaiting(Commit{Offset: c.commit}, c.start, c.end); got != c.want {
			t.Errorf("commit %d in a log of [%d, %d): %d, want %d", c.commit, c.start, c.end, got, c.want)
		}
	}
}

// TestWaitingBelow_CountsOnlyBelowOffset: no run is counted twice or above the offset.
func TestWaitingBelow_CountsOnlyBelowOffset(t *testing.T) {
	acked, _ := wire.EncodeRuns(10, []wire.Run{{First: 11, End: 13}, {First: 15, End: 18}})
	c := Commit{Offset: 10, Metadata: acked}
	for below, want := range map[int64]int64{0: 0, 10: 0, 11: 1, 12: 1, 14: 2, 16: 3, 18: 3, 20: 5, 99: 5} {
		if got := WaitingBelow(c, 0, 20, below); got != want {
			t.Errorf("below %d: %d, want %d", below, got, want)
		}
	}
	if got := WaitingBelow(c, 12, 20, 15); got != 3 {
		t.Errorf("in a log that begins after the commit: %d, want 3", got)
	}
}

func TestPeek_MalformedRecordKeepsOffset(t *testing.T) {
	m, _ := (wire.RawRecord{Offset: 7, Appended: 1_700_000_000_000, Body: []byte{0x7f}}).Message()
	if m.Offset != 7 || m.Appended.UnixMilli() != 1_700_000_000_000 || m.Key != nil {
		t.Errorf("%+v", m)
	}
}
