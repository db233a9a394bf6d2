package main

import (
	"bytes"
	"encoding/binary"
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

func TestSeal_MakesBatchesThatAClientCanRead(t *testing.T) {
	const count = 300 // enough that lengths and offsets need varints of two bytes
	var b batch
	for i := range count {
		b.add(mustMessage(t, i, recordSize))
	}
	got := decode(t, b.seal(due))
	must.That(t, len(got) == count, "read %d records, want %d", len(got), count)
	for i, m := range got {
		r, err := m.Decode()
		must.That(t, err == nil && r.Order.ID == idOf(i) && r.Release.Equal(due) && m.Offset == int64(i), "record %d is %+v at %d: %v", i, r, m.Offset, err)
	}
}

// decode decodes a batch with kafka-go.
func decode(t *testing.T, b []byte) []wire.Message {
	t.Helper()
	var set protocol.RecordSet
	must.Get(set.ReadFrom(io.MultiReader(bytes.NewReader(binary.BigEndian.AppendUint32(nil, uint32(len(b)))), bytes.NewReader(b))))(t)
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

func mustMessage(t *testing.T, number, size int) wire.Message {
	t.Helper()
	m := must.Get(message(number, due, size))(t)
	return m
}

func TestLoad_PutsEachOrderOnceIntoBatchesOfTheRequestedSize(t *testing.T) {
	l := load{records: 1000, partitions: 4, batch: 7, size: recordSize, due: due}
	seen := newTally(l.records)
	rest := map[int]bool{} // partitions whose last, smaller batch was seen
	must.Do(t, l.each(func(s sealed) error {
		records := decode(t, s.bytes)
		expect.That(t, !rest[s.partition] && len(records) <= l.batch, "partition %d: a batch of %d after the last one, or too large", s.partition, len(records))
		rest[s.partition] = len(records) < l.batch
		for _, m := range records {
			p := kafka.PartitionOf(m.Key, l.partitions)
			expect.That(t, p == s.partition, "%s is in partition %d, want %d", m.Key, s.partition, p)
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
		took, err := evenly(t.Context(), 10, 4, 1, func(_, number int, planned time.Time) (time.Time, error) {
			time.Sleep(200 * time.Millisecond)
			return planned, nil
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
