package main

import (
	"bytes"
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/segmentio/kafka-go/protocol"

	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/measure"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/process"
	"github.com/orderclose/orderclose/internal/wire"
)

var due = time.UnixMilli(1_772_366_700_000)

// decode decodes a batch with kafka-go.
func decode(t *testing.T, b []byte) []wire.Message {
	t.Helper()
	var set protocol.RecordSet
	must.Get(set.ReadFrom(bytes.NewReader(b)))(t)
	var all []wire.Message
	for {
		r, err := set.Records.ReadRecord()
		if err == io.EOF {
			return all
		}
		must.Do(t, err)
		m := wire.Message{Offset: r.Offset}
		if m.Key, err = protocol.ReadAll(r.Key); err == nil {
			m.Value, err = protocol.ReadAll(r.Value)
		}
		must.Do(t, err)
		for _, h := range r.Headers {
			m.Headers = append(m.Headers, wire.Header{Key: h.Key, Value: h.Value})
		}
		all = append(all, m)
	}
}

func TestLoad_PutsEachOrderOnceIntoBatchesOfTheRequestedSize(t *testing.T) {
	l := load{records: 3000, batch: 70, due: due}
	seen := newTally(l.records)
	rest := map[int]bool{} // partitions whose last, smaller batch was seen
	must.Do(t, l.each(func(partition int, batch []byte) error {
		records := decode(t, batch)
		expect.That(t, !rest[partition] && len(records) <= l.batch, "partition %d: a batch of %d after the last one, or too large", partition, len(records))
		rest[partition] = len(records) < l.batch
		for _, m := range records {
			p := kafka.PartitionOf(m.Key, partitions)
			expect.That(t, p == partition, "%s is in partition %d, want %d", m.Key, partition, p)
			n, err := numberOf(m.Key)
			if err == nil {
				err = seen.add(n, due)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}))
	expect.NoError(t, seen.check(true))
}

func TestEvenly_CountsTheWaitForAWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		took, err := evenly(ctx, 10, 1, func(int, time.Time) error {
			time.Sleep(200 * time.Millisecond)
			return nil
		})
		expect.That(t, err == nil && len(took) == 4 && took[0] == 200*time.Millisecond && took[3] == 500*time.Millisecond, "%v %v", took, err)
	})
}

func TestSummarize_CountsEarlyRecords(t *testing.T) {
	l := summarize(1000, 2, []received{{number: 2, late: 3 * time.Millisecond}, {number: 1, late: -time.Microsecond}, {number: 0, late: time.Second},
		{number: 3, late: time.Millisecond}}, process.Used{})
	expect.That(t, l.Early == 1 && l.P50 == measure.Millis(time.Millisecond) && l.Max == measure.Millis(3*time.Millisecond), "%+v", l)
}

func TestTally_ReportsMissingAndDuplicateOrders(t *testing.T) {
	for name, c := range map[string]struct {
		numbers  []int
		once, ok bool
	}{
		"each once":               {[]int{2, 0, 1}, true, true},
		"one is missing":          {[]int{0, 1}, false, false},
		"one came for another":    {[]int{0, 1, 1}, false, false},
		"one twice":               {[]int{0, 1, 2, 2}, true, false},
		"one twice, as it may be": {[]int{0, 1, 2, 2}, false, true},
	} {
		tally := newTally(3)
		for _, n := range c.numbers {
			must.Do(t, tally.add(n, due))
		}
		err := tally.check(c.once)
		expect.That(t, (err == nil) == c.ok, "%s: %v", name, err)
	}
	expect.That(t, newTally(3).add(3, due) != nil, "took an order that was never sent")
}

func TestTally_RateExcludesTheFirstMillisecond(t *testing.T) {
	tally := newTally(100)
	for i := range 100 {
		at := due // the first 40
		if i >= 40 {
			at = due.Add(time.Duration(i-39) * time.Millisecond)
		}
		must.Do(t, tally.add(99-i, at))
	}
	expect.Equal(t, tally.rate(), 1000, "records/s")
}
