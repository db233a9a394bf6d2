package kafka

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/segmentio/kafka-go/protocol"

	"orderclose"
)

// batch encodes records with the client library's own encoder and returns the
// batch as a fetch would, at the base offset.
func batch(t testing.TB, base int64, attributes protocol.Attributes, keys ...string) []byte {
	t.Helper()
	records := make([]protocol.Record, len(keys))
	for i, key := range keys {
		records[i] = protocol.Record{
			Offset: int64(i), Time: time.UnixMilli(1000 + int64(i)),
			Key: protocol.NewBytes([]byte(key)), Value: protocol.NewBytes([]byte("value of " + key)),
			Headers: []protocol.Header{{Key: "due", Value: []byte("42")}, {Key: "x-" + key}},
		}
	}
	var b bytes.Buffer
	set := protocol.RecordSet{Version: 2, Attributes: attributes, Records: protocol.NewRecordReader(records...)}
	if _, err := set.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	raw := b.Bytes()[4:] // its size comes first
	binary.BigEndian.PutUint64(raw, uint64(base))
	return raw
}

// stamp sets what a broker sets on a LogAppendTime topic.
func stamp(raw []byte, at time.Time) []byte {
	raw[atAttributes+1] |= logAppendTimeBit
	binary.BigEndian.PutUint64(raw[atMaxTimestamp:], uint64(at.UnixMilli()))
	return reseal(raw)
}

func reseal(raw []byte) []byte {
	binary.BigEndian.PutUint32(raw[atCRC:], crc32.Checksum(raw[atAttributes:], castagnoli))
	return raw
}

func keysOf(f orderclose.Fetched) (keys []string) {
	for _, r := range f.Records {
		keys = append(keys, string(r.Key()))
	}
	return keys
}

func TestSplit_AppendTimeIsTheBatchHeaders(t *testing.T) {
	at := time.UnixMilli(1_700_000_000_123)
	f := splitBatches(stamp(batch(t, 100, 0, "a", "b"), at), 100, nil)
	want := orderclose.Message{
		Offset: 101, Key: []byte("b"), Value: []byte("value of b"), Appended: at,
		Headers: []orderclose.Header{{Key: "due", Value: []byte("42")}, {Key: "x-b"}},
	}
	got, err := f.Records[1].Message()
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("second message (-want +got):\n%s", diff)
	}
	if f.Next != 102 || f.DriftedAppend != 0 || f.Corrupt != nil {
		t.Errorf("next %d, drifted %d, corrupt %v; want 102, 0, none", f.Next, f.DriftedAppend, f.Corrupt)
	}
}

func TestSplit_ABatchStampedByItsProducerIsCounted(t *testing.T) {
	if f := splitBatches(batch(t, 0, 0, "a"), 0, nil); f.DriftedAppend != 1 || len(f.Records) != 1 {
		t.Errorf("drifted %d, %d records; want 1 and 1", f.DriftedAppend, len(f.Records))
	}
}

func TestSplit_StartsAtTheOffsetAskedFor(t *testing.T) {
	f := splitBatches(batch(t, 10, 0, "a", "b", "c"), 11, nil)
	if diff := cmp.Diff([]string{"b", "c"}, keysOf(f)); diff != "" {
		t.Error(diff)
	}
}

func TestSplit_InflatesEveryCompression(t *testing.T) {
	for _, c := range []protocol.Attributes{protocol.Gzip, protocol.Snappy, protocol.Lz4, protocol.Zstd} {
		f := splitBatches(batch(t, 0, c, "a", "b"), 0, nil)
		if diff := cmp.Diff([]string{"a", "b"}, keysOf(f)); diff != "" || f.Corrupt != nil {
			t.Errorf("compression %d: %s %v", c, diff, f.Corrupt)
		}
	}
}

func TestSplit_AControlBatchMovesTheOffsetOn(t *testing.T) {
	marker := batch(t, 5, 0, "marker")
	marker[atAttributes+1] |= controlBit
	f := splitBatches(append(reseal(marker), batch(t, 6, 0, "a")...), 5, nil)
	if diff := cmp.Diff([]string{"a"}, keysOf(f)); diff != "" || f.Next != 7 {
		t.Errorf("%s next %d, want 7", diff, f.Next)
	}
}

func TestSplit_ACutOffBatchIsLeftForTheNextFetch(t *testing.T) {
	whole := batch(t, 0, 0, "a")
	second := batch(t, 1, 0, "b")
	for cut := range len(second) {
		f := splitBatches(append(bytes.Clone(whole), second[:cut]...), 0, nil)
		if f.Next != 1 || len(f.Records) != 1 || f.Corrupt != nil {
			t.Fatalf("cut at %d: next %d, %d records, corrupt %v", cut, f.Next, len(f.Records), f.Corrupt)
		}
	}
}

func TestSplit_ADamagedBatchIsReportedAfterWhatCameBefore(t *testing.T) {
	damaged := batch(t, 1, 0, "b", "c")
	damaged[len(damaged)-1] ^= 1
	all := append(append(batch(t, 0, 0, "a"), damaged...), batch(t, 3, 0, "d")...)
	f := splitBatches(all, 0, nil)
	if diff := cmp.Diff([]string{"a"}, keysOf(f)); diff != "" {
		t.Error(diff)
	}
	if f.Corrupt == nil || f.Corrupt.First != 1 || f.Corrupt.Last != 2 || f.Next != 3 {
		t.Errorf("corrupt %+v, next %d; want 1 to 2, and 3", f.Corrupt, f.Next)
	}
	if f = splitBatches(all[len(batch(t, 0, 0, "a"))+len(damaged):], 3, nil); f.Next != 4 {
		t.Errorf("after it: next %d, want 4", f.Next)
	}
}

// FuzzSplit holds that nothing a broker sends makes the decoder panic, stand
// still, or go back.
func FuzzSplit(f *testing.F) {
	f.Add(batch(f, 0, 0, "a", "b"), int64(0))
	f.Add(batch(f, 7, protocol.Zstd, "a"), int64(7))
	f.Add(reseal(batch(f, 3, 0, "a")), int64(5))
	f.Add([]byte{}, int64(1))
	f.Fuzz(func(t *testing.T, raw []byte, offset int64) {
		if offset < 0 || offset > 1<<60 {
			return
		}
		if len(raw) >= headerSize {
			reseal(raw) // let it past the checksum
		}
		got := splitBatches(raw, offset, nil)
		if got.Next < offset {
			t.Fatalf("next %d is before %d", got.Next, offset)
		}
		for i, m := range got.Records {
			if m.Offset < offset || m.Offset >= got.Next || i > 0 && m.Offset <= got.Records[i-1].Offset {
				t.Fatalf("record %d has offset %d", i, m.Offset)
			}
		}
	})
}
