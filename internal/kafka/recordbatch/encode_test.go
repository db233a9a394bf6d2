package recordbatch

import (
	"bytes"
	"io"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/segmentio/kafka-go/protocol"
	"pgregory.net/rapid"

	"github.com/orderclose/orderclose/internal/wire"
)

// decode decodes a batch with the client library's decoder.
func decode(t testing.TB, raw []byte) (all []wire.Message) {
	t.Helper()
	var set protocol.RecordSet
	if _, err := set.ReadFrom(bytes.NewReader(raw)); err != nil {
		t.Fatal(err)
	}
	for {
		r, err := set.Records.ReadRecord()
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		m := wire.Message{Offset: r.Offset, Appended: r.Time}
		m.Key, m.Value = read(t, r.Key), read(t, r.Value)
		for _, h := range r.Headers {
			m.Headers = append(m.Headers, wire.Header{Key: h.Key, Value: h.Value})
		}
		all = append(all, m)
	}
}

func read(t testing.TB, b protocol.Bytes) []byte {
	t.Helper()
	if b == nil {
		return nil
	}
	v, err := io.ReadAll(b)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func anyRecords(t *rapid.T) []wire.Message {
	bytes := rapid.OneOf(rapid.Just([]byte(nil)), rapid.SliceOfN(rapid.Byte(), 1, 200))
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) wire.Message {
		m := wire.Message{Key: bytes.Draw(t, "key"), Value: bytes.Draw(t, "value")}
		for range rapid.IntRange(0, 4).Draw(t, "headers") {
			m.Headers = append(m.Headers, wire.Header{Key: rapid.StringN(1, 10, 30).Draw(t, "name"), Value: rapid.SliceOfN(rapid.Byte(), 1, 40).Draw(t, "header")})
		}
		return m
	}), 1, 200).Draw(t, "records")
}

// TestEncode_IsReadableByClientLibrary: the library's decoder finds the same records in the
// batch, numbered from 0 and with the present timestamp.
func TestEncode_IsReadableByClientLibrary(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		want := anyRecords(rt)
		records := make([]wire.RawRecord, len(want))
		now := time.UnixMilli(1_700_000_000_123)
		for i := range want {
			records[i] = want[i].Raw()
			want[i].Offset, want[i].Appended = int64(i), now
		}
		batch := Encode(nil, records, now, Sequence{ProducerID: 7, Epoch: 1, Base: 42})
		if diff := cmp.Diff(want, decode(t, batch)); diff != "" {
			rt.Fatalf("(-want +got):\n%s", diff)
		}
		dirty := bytes.Repeat([]byte{0xff}, len(batch)+10)
		if again := Encode(dirty, records, now, Sequence{ProducerID: 7, Epoch: 1, Base: 42}); !bytes.Equal(again, batch) {
			rt.Fatal("the batch differs when it is written into a used buffer")
		}
		if cap(batch) != len(batch) && cap(batch)-len(batch) > 4*len(records) {
			rt.Fatalf("%d bytes in a buffer of %d", len(batch), cap(batch))
		}
	})
}

// TestEncode_UndoesSplit: a record that is split out of a batch and spliced into another is
// the same, byte for byte.
func TestEncode_UndoesSplit(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		messages := anyRecords(rt)
		records := make([]wire.RawRecord, len(messages))
		for i := range messages {
			records[i] = messages[i].Raw()
		}
		batch := Encode(nil, records, time.UnixMilli(5), NoProducer)
		f := Split(batch[4:], 0, math.MaxInt64, nil)
		if f.Corrupt != nil || len(f.Records) != len(records) || f.Next != int64(len(records)) {
			rt.Fatalf("corrupt %v, %d of %d records, next %d", f.Corrupt, len(f.Records), len(records), f.Next)
		}
		for i, r := range f.Records {
			if !bytes.Equal(r.Body, records[i].Body) || r.Offset != int64(i) || r.Appended != 5 {
				rt.Fatalf("record %d is %+v, want %+v", i, r, records[i])
			}
		}
		if again := Encode(nil, f.Records, time.UnixMilli(5), NoProducer); !bytes.Equal(again, batch) {
			rt.Fatal("the batch differs when it is spliced again")
		}
	})
}
