package main

import (
	"bytes"
	"encoding/binary"
	"io"
	"testing"
	"time"

	"github.com/segmentio/kafka-go/protocol"

	"github.com/orderclose/orderclose/internal/kafka"
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
	if len(got) != count {
		t.Fatalf("read %d records, want %d", len(got), count)
	}
	for i, m := range got {
		r, err := m.Decode()
		if err != nil || r.Order.ID != idOf(i) || !r.Release.Equal(due) || m.Offset != int64(i) {
			t.Fatalf("record %d is %+v at %d: %v", i, r, m.Offset, err)
		}
	}
}

// decode decodes a batch with kafka-go.
func decode(t *testing.T, b []byte) []wire.Message {
	t.Helper()
	var set protocol.RecordSet
	if _, err := set.ReadFrom(io.MultiReader(bytes.NewReader(binary.BigEndian.AppendUint32(nil, uint32(len(b)))), bytes.NewReader(b))); err != nil {
		t.Fatal(err)
	}
	var all []wire.Message
	for {
		r, err := set.Records.ReadRecord()
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		m := wire.Message{Offset: r.Offset}
		if m.Key, err = protocol.ReadAll(r.Key); err == nil {
			m.Value, err = protocol.ReadAll(r.Value)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range r.Headers {
			m.Headers = append(m.Headers, wire.Header{Key: h.Key, Value: h.Value})
		}
		all = append(all, m)
	}
}

func mustMessage(t *testing.T, number, size int) wire.Message {
	t.Helper()
	m, err := message(number, due, size)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestMessage_HasTheRequestedSize(t *testing.T) {
	for _, size := range []int{recordSize, 2048} {
		for _, number := range []int{0, 17, 999_999} {
			if have := len(appendRecord(nil, 0, mustMessage(t, number, size))); have < size-2 || have > size+2 {
				t.Errorf("order %d takes %d bytes, want about %d", number, have, size)
			}
		}
	}
}

func TestNumberOf_InvertsIdOf(t *testing.T) {
	if n, err := numberOf([]byte(idOf(123_456))); n != 123_456 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if _, err := numberOf([]byte("somebody-elses")); err == nil {
		t.Error("took a key that is none of ours")
	}
}

func TestLoad_PutsEachOrderOnceIntoBatchesOfTheRequestedSize(t *testing.T) {
	l := load{records: 1000, partitions: 4, batch: 7, size: recordSize, due: due}
	seen := newTally(l.records)
	rest := map[int]bool{} // partitions whose last, smaller batch was seen
	err := l.each(func(s sealed) error {
		records := decode(t, s.bytes)
		if rest[s.partition] || len(records) > l.batch {
			t.Errorf("partition %d: a batch of %d after the last one, or too large", s.partition, len(records))
		}
		rest[s.partition] = len(records) < l.batch
		for _, m := range records {
			if p := kafka.PartitionOf(m.Key, l.partitions); p != s.partition {
				t.Errorf("%s is in partition %d, want %d", m.Key, s.partition, p)
			}
			n, err := numberOf(m.Key)
			if err == nil {
				err = seen.add(n, due)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := seen.check(true); err != nil {
		t.Error(err)
	}
}
