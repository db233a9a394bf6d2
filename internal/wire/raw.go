package wire

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kbin"
)

// RawRecord is a record in Kafka's own encoding, not decoded. Forwarding it costs
// only a copy of its bytes.
type RawRecord struct {
	Offset int64
	// Appended is when the broker appended the record, in unix milliseconds: the
	// timestamp in the header of its batch. The record's own timestamp comes from its
	// producer and is not used.
	Appended int64
	// Body is the record from the length of its key to its last header, in the record
	// format of Kafka's magic 2. It may share memory with other records: copy it to
	// keep it.
	Body []byte
	// DueAt holds the result of Route, in unix milliseconds, if its caller stores it here.
	DueAt int64
}

// Size returns roughly how much memory the record keeps, in bytes.
func (r RawRecord) Size() int { return 96 + len(r.Body) } // 96: the struct in a relay's window, and its bookkeeping

// AppendedAt returns Appended as a time.Time.
func (r RawRecord) AppendedAt() time.Time { return time.UnixMilli(r.Appended) }

// Key returns the key of the record, or nil if it has none or is malformed. The key
// shares the body's memory.
func (r RawRecord) Key() []byte {
	b := kbin.Reader{Src: r.Body}
	return b.VarintBytes()
}

// Value returns the value of the record, or nil. It shares the body's memory.
func (r RawRecord) Value() []byte {
	b := kbin.Reader{Src: r.Body}
	b.VarintBytes() // the key
	return b.VarintBytes()
}

// Header returns the value of the last header with that name, or nil. It shares the body's memory.
func (r RawRecord) Header(name string) (value []byte) {
	b := kbin.Reader{Src: r.Body}
	b.VarintBytes() // the key
	b.VarintBytes() // the value
	for n := countHeaders(&b); n > 0 && b.Ok(); n-- {
		if key, of := b.VarintBytes(), b.VarintBytes(); string(key) == name {
			value = of
		}
	}
	return value
}

// IsCopy reports whether a person has sent the record again.
func (r RawRecord) IsCopy() bool { return string(r.Header(HeaderLane)) == LaneReplay }

// Route reads in one pass all that a relay needs: the release time in the due header, in unix
// milliseconds. It checks the record as Message.Due does. The error is a *RecordError.
func (r RawRecord) Route() (dueAt int64, err error) {
	b := kbin.Reader{Src: r.Body}
	key := b.VarintBytes()
	b.VarintBytes() // the value
	var due, version []byte
	for n := countHeaders(&b); n > 0 && b.Ok(); n-- {
		name, value := b.VarintBytes(), b.VarintBytes()
		switch string(name) {
		case HeaderDue:
			due = value
		case HeaderVersion:
			version = value
		}
	}
	if ms, ok := decimal(due); ok && b.Ok() && len(key) > 0 && string(version) == WireVersion {
		return ms, nil
	}
	m, err := r.Message() // the slow path finds out what is wrong
	if err != nil {
		return 0, err
	}
	t, err := m.Due()
	return t.UnixMilli(), err
}

// Clone returns the record with a copy of its body.
func (r RawRecord) Clone() RawRecord {
	r.Body = append(make([]byte, 0, len(r.Body)), r.Body...)
	return r
}

// Message decodes the record and copies its bytes. The error is a *RecordError.
func (r RawRecord) Message() (Message, error) { return r.Clone().View() }

// View is Message, but key, value and headers share the memory of Body.
func (r RawRecord) View() (Message, error) {
	m := Message{Offset: r.Offset, Appended: r.AppendedAt()}
	b := kbin.Reader{Src: r.Body}
	m.Key = b.VarintBytes()
	m.Value = b.VarintBytes()
	if n := countHeaders(&b); n > 0 {
		m.Headers = make([]Header, n)
	}
	for i := range m.Headers {
		m.Headers[i].Key = headerName(b.VarintBytes())
		m.Headers[i].Value = b.VarintBytes()
	}
	if !b.Ok() {
		return Message{Offset: r.Offset, Appended: m.Appended}, &RecordError{ErrMalformed,
			fmt.Sprintf("the record's bytes end early, it has more than %d headers, or it has more than %d bytes", maxHeaders, MaxRecordBytes)}
	}
	return m, nil
}

// Raw encodes the message, without Topic and Partition.
func (m *Message) Raw() RawRecord {
	size := 3 * binary.MaxVarintLen32
	size += len(m.Key) + len(m.Value)
	for _, h := range m.Headers {
		size += 2*binary.MaxVarintLen32 + len(h.Key) + len(h.Value)
	}
	b := make([]byte, 0, size)
	b = appendBytes(b, m.Key, m.Key == nil)
	b = appendBytes(b, m.Value, m.Value == nil)
	b = binary.AppendVarint(b, int64(len(m.Headers)))
	for _, h := range m.Headers {
		b = appendBytes(b, []byte(h.Key), false)
		b = appendBytes(b, h.Value, h.Value == nil)
	}
	return RawRecord{Offset: m.Offset, Appended: m.Appended.UnixMilli(), Body: b}
}

func appendBytes(b, v []byte, null bool) []byte {
	if null {
		return binary.AppendVarint(b, -1)
	}
	return append(binary.AppendVarint(b, int64(len(v))), v...)
}

// headerName returns b as a string, without an allocation for the names that every
// record has.
func headerName(b []byte) string {
	switch string(b) {
	case HeaderDue:
		return HeaderDue
	case HeaderVersion:
		return HeaderVersion
	case HeaderTraceparent:
		return HeaderTraceparent
	}
	return string(b)
}

// decimal parses a number as strconv.ParseInt does, faster for up to 18 digits
// without a sign.
func decimal(b []byte) (int64, bool) {
	if len(b) == 0 || len(b) > 18 {
		n, err := strconv.ParseInt(string(b), 10, 64)
		return n, err == nil
	}
	var n int64
	for _, c := range b {
		if c < '0' || c > '9' {
			n, err := strconv.ParseInt(string(b), 10, 64) // it may have a sign
			return n, err == nil
		}
		n = n*10 + int64(c-'0')
	}
	return n, true
}

// MaxRecordBytes bounds the key, the value and the headers of a record together, after decompression: twice what brokers accept by
// default in a batch. A larger record counts as malformed.
const MaxRecordBytes = 2 << 20

// maxHeaders limits the headers of a record: a few bytes can claim millions of
// headers, and each takes 40 bytes in memory.
const maxHeaders = 1000

// countHeaders reads the number of headers. If there are more than maxHeaders, or more than the bytes that are left can hold, it returns
// 0, and b is not Ok.
func countHeaders(b *kbin.Reader) int {
	n := int(b.Varint())
	if n < 0 || n > min(maxHeaders, len(b.Src)/2) {
		b.Span(-1) // makes b not Ok
		return 0
	}
	return n
}
