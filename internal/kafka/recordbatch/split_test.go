package recordbatch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/snappy"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

// Positions of fields in a header that the tests damage.
const (
	atMagic        = 16
	atLastDelta    = 23
	atMaxTimestamp = 35
)

// batch encodes records with the client library's encoder and returns the batch as a fetch returns it, with the base offset.
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
	must.Get(set.WriteTo(&b))(t)
	raw := b.Bytes()[4:] // the size comes first
	binary.BigEndian.PutUint64(raw, uint64(base))
	return raw
}

// stamp sets what a broker sets in a batch of a LogAppendTime topic.
func stamp(raw []byte, at time.Time) []byte {
	raw[atAttributes+1] |= logAppendTimeBit
	binary.BigEndian.PutUint64(raw[atMaxTimestamp:], uint64(at.UnixMilli()))
	return reseal(raw)
}

func reseal(raw []byte) []byte {
	binary.BigEndian.PutUint32(raw[atCRC:], crc32.Checksum(raw[atAttributes:], castagnoli))
	return raw
}

func keysOf(f wire.Fetched) (keys []string) {
	for _, r := range f.Records {
		keys = append(keys, string(r.Key()))
	}
	return keys
}

func TestSplit_TakesAppendTimeFromBatchHeader(t *testing.T) {
	at := time.UnixMilli(1_700_000_000_123)
	f := Split(stamp(batch(t, 100, 0, "a", "b"), at), 100, math.MaxInt64, 0, nil)
	want := wire.Message{
		Offset: 101, Key: []byte("b"), Value: []byte("value of b"), Appended: at,
		Headers: []wire.Header{{Key: "due", Value: []byte("42")}, {Key: "x-b"}},
	}
	got, err := f.Records[1].Message()
	expect.Same(t, got, want, "second message")
	expect.NoError(t, err)
	expect.That(t, f.Next == 102 && f.DriftedAppend == 0 && f.Corrupt == nil,
		"next %d, drifted %d, corrupt %v; want 102, 0, none", f.Next, f.DriftedAppend, f.Corrupt)
}

func TestSplit_CountsBatchesStampedByProducer(t *testing.T) {
	f := Split(batch(t, 0, 0, "a"), 0, math.MaxInt64, 0, nil)
	expect.That(t, f.DriftedAppend == 1 && len(f.Records) == 1, "drifted %d, %d records; want 1 and 1", f.DriftedAppend, len(f.Records))
}

func TestSplit_StartsAtRequestedOffset(t *testing.T) {
	f := Split(batch(t, 10, 0, "a", "b", "c"), 11, math.MaxInt64, 0, nil)
	expect.Same(t, keysOf(f), []string{"b", "c"}, "keys")
}

func TestSplit_DecompressesEveryCodec(t *testing.T) {
	for _, c := range []protocol.Attributes{protocol.Gzip, protocol.Snappy, protocol.Lz4, protocol.Zstd} {
		f := Split(batch(t, 0, c, "a", "b"), 0, math.MaxInt64, 0, nil)
		if diff := cmp.Diff([]string{"a", "b"}, keysOf(f)); diff != "" || f.Corrupt != nil {
			t.Errorf("compression %d: %s %v", c, diff, f.Corrupt)
		}
	}
}

func TestSplit_ControlBatchAdvancesOffset(t *testing.T) {
	marker := batch(t, 5, 0, "marker")
	marker[atAttributes+1] |= controlBit
	f := Split(append(reseal(marker), batch(t, 6, 0, "a")...), 5, math.MaxInt64, 0, nil)
	expect.Same(t, keysOf(f), []string{"a"}, "keys")
	expect.Equal(t, f.Next, 7, "next")
}

func TestSplit_LeavesCutOffBatchToNextFetch(t *testing.T) {
	whole := batch(t, 0, 0, "a")
	second := batch(t, 1, 0, "b")
	for cut := range len(second) {
		f := Split(append(bytes.Clone(whole), second[:cut]...), 0, math.MaxInt64, 0, nil)
		must.That(t, f.Next == 1 && len(f.Records) == 1 && f.Corrupt == nil, "cut at %d: next %d, %d records, corrupt %v", cut, f.Next, len(f.Records), f.Corrupt)
	}
}

func TestSplit_ReportsDamagedBatchAfterGoodRecords(t *testing.T) {
	damaged := batch(t, 1, 0, "b", "c")
	damaged[len(damaged)-1] ^= 1
	all := append(append(batch(t, 0, 0, "a"), damaged...), batch(t, 3, 0, "d")...)
	f := Split(all, 0, math.MaxInt64, 0, nil)
	expect.Same(t, keysOf(f), []string{"a"}, "keys")
	expect.That(t, f.Corrupt != nil && f.Corrupt.First == 1 && f.Corrupt.Last == 2 && f.Next == 3, "corrupt %+v, next %d; want 1 to 2, and 3", f.Corrupt, f.Next)
	if f = Split(all[len(batch(t, 0, 0, "a"))+len(damaged):], 3, math.MaxInt64, 0, nil); f.Next != 4 {
		t.Errorf("after the damaged batch: next %d, want 4", f.Next)
	}
}

// TestSplit_ReturnsTheEpochOfTheLastBatch also if a bit of an earlier epoch has flipped: a broker rejects an epoch that it does not know.
func TestSplit_ReturnsTheEpochOfTheLastBatch(t *testing.T) {
	var all []byte
	for n, epoch := range []uint32{3, 3 | 1<<20, 4} {
		b := batch(t, int64(n), 0, "a")
		binary.BigEndian.PutUint32(b[atLength+4:], epoch)
		all = append(all, b...)
	}
	f := Split(all, 0, 3, 0, nil)
	expect.That(t, f.Log.Epoch == 4 && f.Next == 3 && f.Corrupt == nil, "%+v; want epoch 4", f)
}

// TestSplit_DistrustsDamagedHeader requires that no good record is skipped. The base offset
// of the next batch, and the end of the log, are more reliable than a damaged header.
func TestSplit_DistrustsDamagedHeader(t *testing.T) {
	at := time.UnixMilli(1000)
	good := stamp(batch(t, 6, 0, "g", "h"), at)
	damaged := func(how func(b []byte)) []byte {
		b := stamp(batch(t, 5, 0, "a"), at)
		how(b)
		return b
	}
	delta := damaged(func(b []byte) { binary.BigEndian.PutUint32(b[atLastDelta:], 900_000) })
	length := damaged(func(b []byte) { binary.BigEndian.PutUint32(b[atLength:], 1<<20) })
	base := damaged(func(b []byte) { binary.BigEndian.PutUint64(b, 5+1<<40) })
	for name, c := range map[string]struct {
		raw              []byte
		first, last, end int64
	}{
		"delta":                       {bytes.Join([][]byte{delta, good}, nil), 5, 5, 8},
		"delta, at the end":           {delta, 5, 5, 6},
		"delta, the next one cut off": {append(bytes.Clone(delta), good[:20]...), 5, 5, 8},
		"length":                      {bytes.Join([][]byte{length, good}, nil), 5, 5, 8},
		"base":                        {bytes.Join([][]byte{base, good}, nil), 5, 5, 8},
		"base, at the end":            {base, 5, 5, 6},
	} {
		f := Split(c.raw, 5, c.end, 0, nil)
		expect.That(t, f.Corrupt != nil && f.Corrupt.First == c.first && f.Corrupt.Last == c.last && f.Next == c.last+1 && len(f.Records) == 0,
			"%s: corrupt %+v, next %d, %d records; want %d to %d", name, f.Corrupt, f.Next, len(f.Records), c.first, c.last)
	}
	if f := Split(good, 6, 8, 0, nil); f.Corrupt != nil || f.Next != 8 || len(f.Records) != 2 {
		t.Errorf("after the damaged batch: %+v", f)
	}
}

// largeBatch returns a zstd batch with as many records, numbered from base on, each with a value of size bytes.
func largeBatch(t *testing.T, base int64, n, size int) []byte {
	records := make([]protocol.Record, n)
	for i := range records {
		records[i] = protocol.Record{Offset: int64(i), Key: protocol.NewBytes([]byte("k")), Value: protocol.NewBytes(make([]byte, size))}
	}
	var b bytes.Buffer
	set := protocol.RecordSet{Version: 2, Attributes: protocol.Zstd, Records: protocol.NewRecordReader(records...)}
	must.Get(set.WriteTo(&b))(t)
	raw := b.Bytes()[4:]
	binary.BigEndian.PutUint64(raw, uint64(base))
	return stamp(raw, time.UnixMilli(1000))
}

// heldBytes returns how many bytes of memory the records hold: each of their arrays once.
func heldBytes(f wire.Fetched) (n int) {
	seen := map[*byte]bool{}
	for _, r := range f.Records {
		whole := r.Body[:cap(r.Body)]
		if end := &whole[cap(whole)-1]; !seen[end] {
			seen[end] = true
			n += cap(whole)
		}
	}
	return n
}

// TestSplit_BoundsAnswer: whatever a producer puts into its batches, each answer has a bounded number of records that hold a bounded
// number of bytes, and one answer after the other returns every record once. A batch that alone exceeds maxInflated is corrupt.
func TestSplit_BoundsAnswer(t *testing.T) {
	for name, c := range map[string]struct{ batches, records, size, most, wantRecords int }{
		"many small records":       {1, 40_000, 0, 0, answerRecords},
		"many small batches":       {3000, 5, 0, 0, answerRecords},
		"a few records are wanted": {1, 200, 1000, 50, 50},
		"one record is wanted":     {2, 20, 1000, 1, 1},
		"large batches":            {10, 30, 100 << 10, 0, 21},
		"large records":            {5, 30, 1 << 20, 0, 2},
		"each record is too large": {1, 10, 3 << 20, 0, 10},
		"a batch of many records":  {1, 300, 10 << 10, 0, 205},
	} {
		var answer []byte
		for n := range c.batches {
			answer = append(answer, largeBatch(t, int64(n*c.records), c.records, c.size)...)
		}
		end := int64(c.batches * c.records)
		for offset, first := int64(0), int64(0); offset < end; {
			f := Split(answer, offset, end, c.most, nil)
			must.That(t, f.Corrupt == nil && f.Next > offset && len(f.Records) == int(f.Next-offset) && f.Records[0].Offset == offset,
				"%s, from %d: next %d, %d records, corrupt %v", name, offset, f.Next, len(f.Records), f.Corrupt)
			must.That(t, len(f.Records) == c.wantRecords || f.Next == end && len(f.Records) < c.wantRecords,
				"%s, from %d: %d records, want %d", name, offset, len(f.Records), c.wantRecords)
			expect.AtMost(t, heldBytes(f), 2*(answerBytes+wire.MaxRecordBytes), "%s: bytes that the records of an answer hold", name)
			for offset = f.Next; first+int64(c.records) <= offset; first += int64(c.records) { // an answer begins with the batch of the offset
				answer = answer[atLength+4+binary.BigEndian.Uint32(answer[atLength:]):]
			}
		}
	}
	if f := Split(largeBatch(t, 0, 1, maxInflated), 0, 1, 0, nil); f.Corrupt == nil || f.Next != 1 {
		t.Errorf("a batch that exceeds maxInflated: %+v", f)
	}
}

// TestSplit_CutsARecordThatIsTooLarge: its dead letter has the beginning of it.
func TestSplit_CutsARecordThatIsTooLarge(t *testing.T) {
	f := Split(largeBatch(t, 0, 2, wire.MaxRecordBytes), 0, 2, 0, nil)
	must.That(t, len(f.Records) == 2 && f.Next == 2 && f.Corrupt == nil, "%d records, next %d, corrupt %v", len(f.Records), f.Next, f.Corrupt)
	for _, r := range f.Records {
		_, err := r.Message()
		expect.That(t, errors.Is(err, wire.ErrMalformed) && len(r.Body) == wire.MaxDeadValue, "%d bytes, %v", len(r.Body), err)
	}
	f = Split(largeBatch(t, 0, 1, wire.MaxRecordBytes-100), 0, 1, 0, nil)
	_, err := f.Records[0].Message()
	expect.NoError(t, err)
}

// TestSplit_RefusesASizeBeforeItAllocatesIt: a few bytes say that 256 MiB follow, or are needed.
func TestSplit_RefusesASizeBeforeItAllocatesIt(t *testing.T) {
	large := binary.BigEndian.AppendUint32(nil, 256<<20)
	block := snappy.Encode(nil, []byte("block"))
	framed := func(rest ...[]byte) []byte {
		return append(append(xerialMagic, 0, 0, 0, 1, 0, 0, 0, 1), bytes.Join(rest, nil)...)
	}
	size := binary.BigEndian.AppendUint32(nil, uint32(len(block)))
	claims := append(binary.AppendUvarint(nil, 256<<20), make([]byte, 64)...)
	for name, b := range map[string][]byte{
		"xerial length":                 compressed(protocol.Snappy, framed(large, []byte{1, 2, 3})),
		"xerial length after a block":   compressed(protocol.Snappy, framed(size, block, large)),
		"length of a block":             compressed(protocol.Snappy, claims),
		"length of a block with xerial": compressed(protocol.Snappy, framed([]byte{0, 0, 0, byte(len(claims))}, claims)),
		// A block of one byte and an empty last block.
		"window": compressed(protocol.Zstd, []byte{0x28, 0xb5, 0x2f, 0xfd, 0, (28 - 10) << 3, 1 << 3, 0, 0, 'x', 1, 0, 0}),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		f := Split(b, 0, 1, 0, nil)
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; f.Corrupt == nil || f.Next != 1 || n > maxInflated {
			t.Errorf("%s: %d bytes allocated, next %d, corrupt %v", name, n, f.Next, f.Corrupt)
		}
	}
}

// compressed returns a batch of one record whose compressed bytes are payload.
func compressed(codec protocol.Attributes, payload []byte) []byte {
	raw := (&kmsg.RecordBatch{
		PartitionLeaderEpoch: -1, Length: int32(headerSize - atLength - 4 + len(payload)), Magic: 2, Attributes: int16(codec),
		ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1, NumRecords: 1, Records: payload,
	}).AppendTo(nil)
	return reseal(raw)
}

// FuzzSplit requires that no input makes Split panic, make no progress, or move back, and that Split finds the same records as the client library.
func FuzzSplit(f *testing.F) {
	f.Add(batch(f, 0, 0, "a", "b"), int64(0))
	for _, c := range []protocol.Attributes{protocol.Gzip, protocol.Snappy, protocol.Lz4, protocol.Zstd} {
		f.Add(batch(f, 7, c, "a"), int64(7))
		f.Add(compressed(c, []byte("payload")), int64(0))
	}
	f.Add(reseal(batch(f, 3, 0, "a")), int64(5))
	f.Add([]byte{}, int64(1))
	f.Fuzz(func(t *testing.T, raw []byte, offset int64) {
		if offset < 0 || offset > 1<<60 {
			return
		}
		if len(raw) >= headerSize {
			if offset%2 == 0 { // one batch of all bytes, so that they reach the decoders
				binary.BigEndian.PutUint32(raw[atLength:], uint32(len(raw)-atLength-4))
				raw[atMagic] = 2
			}
			reseal(raw) // make the checksum right
		}
		got := Split(raw, offset, math.MaxInt64, 0, nil)
		compareWithLibrary(t, raw, offset, got)
		must.That(t, got.Next >= offset, "next %d is before %d", got.Next, offset)
		for i, m := range got.Records {
			if m.Offset < offset || m.Offset >= got.Next || i > 0 && m.Offset <= got.Records[i-1].Offset {
				t.Fatalf("record %d has offset %d", i, m.Offset)
			}
		}
	})
}

// compareWithLibrary compares the records of a readable batch that begins at the offset with
// the records that the client library decodes. The library decompresses control batches without a limit.
func compareWithLibrary(t *testing.T, raw []byte, offset int64, got wire.Fetched) {
	if len(raw) < headerSize || got.Corrupt != nil || raw[atAttributes+1]&controlBit != 0 || int64(binary.BigEndian.Uint64(raw)) != offset ||
		atLength+4+int(int32(binary.BigEndian.Uint32(raw[atLength:]))) != len(raw) {
		return
	}
	want, err := decode(io.MultiReader(bytes.NewReader(binary.BigEndian.AppendUint32(nil, uint32(len(raw)))), bytes.NewReader(raw)))
	if err != nil {
		return // the library rejects some fields that Split ignores
	}
	for i, r := range got.Records {
		m, err := r.Message()
		if err != nil || i >= len(want) {
			return
		}
		must.That(t, bytes.Equal(m.Key, want[i].Key) && bytes.Equal(m.Value, want[i].Value),
			"record %d is %q %q, the library has %q %q", i, m.Key, m.Value, want[i].Key, want[i].Value)
	}
}

// decode decodes a batch, whose size comes first, with the client library. The library may panic on damaged input.
func decode(batch io.Reader) (all []wire.Message, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the library panics: %v", p)
		}
	}()
	var set protocol.RecordSet
	if _, err := set.ReadFrom(batch); err != nil {
		return nil, err
	}
	for set.Records != nil {
		r, err := set.Records.ReadRecord()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		m := wire.Message{Offset: r.Offset, Appended: r.Time}
		for to, from := range map[*[]byte]protocol.Bytes{&m.Key: r.Key, &m.Value: r.Value} {
			if from != nil {
				if *to, err = io.ReadAll(from); err != nil {
					return nil, err
				}
			}
		}
		for _, h := range r.Headers {
			m.Headers = append(m.Headers, wire.Header{Key: h.Key, Value: h.Value})
		}
		all = append(all, m)
	}
	return all, nil
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

// TestEncode_IsReadableByClientLibrary: the library's decoder finds the same records in the batch, numbered from 0 and with the present timestamp.
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
		diff := cmp.Diff(want, must.Get(decode(bytes.NewReader(batch)))(t))
		must.That(rt, diff == "", "(-want +got):\n%s", diff)
		dirty := bytes.Repeat([]byte{0xff}, len(batch)+10)
		again := Encode(dirty, records, now, Sequence{ProducerID: 7, Epoch: 1, Base: 42})
		must.That(rt, bytes.Equal(again, batch), "the batch differs when it is written into a used buffer")
		must.That(rt, cap(batch) == len(batch) || cap(batch)-len(batch) <= 4*len(records), "%d bytes in a buffer of %d", len(batch), cap(batch))
	})
}

// TestEncode_UndoesSplit: a record that is split out of a batch and spliced into another is the same, byte for byte.
func TestEncode_UndoesSplit(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		messages := anyRecords(rt)
		records := make([]wire.RawRecord, len(messages))
		for i := range messages {
			records[i] = messages[i].Raw()
		}
		batch := Encode(nil, records, time.UnixMilli(5), NoProducer)
		f := Split(batch[4:], 0, math.MaxInt64, 0, nil)
		must.That(rt, f.Corrupt == nil && len(f.Records) == len(records) && f.Next == int64(len(records)),
			"corrupt %v, %d of %d records, next %d", f.Corrupt, len(f.Records), len(records), f.Next)
		for i, r := range f.Records {
			must.That(rt, bytes.Equal(r.Body, records[i].Body) && r.Offset == int64(i) && r.Appended == 5, "record %d is %+v, want %+v", i, r, records[i])
		}
		must.That(rt, bytes.Equal(Encode(nil, f.Records, time.UnixMilli(5), NoProducer), batch), "the batch differs when it is spliced again")
	})
}
