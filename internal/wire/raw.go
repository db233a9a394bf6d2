package wire

import (
	"encoding/binary"
	"strconv"
	"time"
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
	// DueAt and Replay hold the results of Route, if its caller stores them here.
	DueAt  int64 // unix milliseconds
	Replay bool  // the record is on the replay lane
	// Generation identifies the log of the partition that the record was read from;
	// see Fetched.
	Generation uint32
}

// Size returns roughly how much memory the record keeps, in bytes.
func (r RawRecord) Size() int { return 96 + len(r.Body) } // 96: the struct in a relay's window, and its bookkeeping

// AppendedAt returns Appended as a time.Time.
func (r RawRecord) AppendedAt() time.Time { return time.UnixMilli(r.Appended) }

// Key returns the key of the record, or nil if it has none or is malformed. The key
// shares the body's memory.
func (r RawRecord) Key() []byte {
	b := body{rest: r.Body}
	return b.bytes()
}

// Header returns the value of the last header with that name, or nil. It shares the body's memory.
func (r RawRecord) Header(name string) (value []byte) {
	b := body{rest: r.Body}
	b.bytes() // the key
	b.bytes() // the value
	for n := b.count(); n > 0 && !b.bad; n-- {
		if key, of := b.bytes(), b.bytes(); string(key) == name {
			value = of
		}
	}
	return value
}

// Route reads in one pass all that a relay needs: the release time in the due header, in unix
// milliseconds, and whether the record is on the replay lane. It checks the record as Message.Due
// does. The error is a *RecordError.
func (r RawRecord) Route() (dueAt int64, replay bool, err error) {
	b := body{rest: r.Body}
	key := b.bytes()
	b.bytes() // the value
	var due, version, lane []byte
	for n := b.count(); n > 0 && !b.bad; n-- {
		name, value := b.bytes(), b.bytes()
		switch string(name) {
		case HeaderDue:
			due = value
		case HeaderVersion:
			version = value
		case HeaderLane:
			lane = value
		}
	}
	replay = string(lane) == LaneReplay
	if ms, ok := decimal(due); ok && !b.bad && len(key) > 0 && string(version) == WireVersion {
		return ms, replay, nil
	}
	m, err := r.Message() // the slow path finds out what is wrong
	if err != nil {
		return 0, false, err
	}
	t, err := m.Due()
	return t.UnixMilli(), replay, err
}

// Message decodes the record and copies its bytes. The error is a *RecordError.
func (r RawRecord) Message() (Message, error) {
	m := Message{Offset: r.Offset, Generation: r.Generation, Appended: r.AppendedAt()}
	// One allocation for key, value and headers.
	b := body{rest: append(make([]byte, 0, len(r.Body)), r.Body...)}
	m.Key = b.bytes()
	m.Value = b.bytes()
	n := b.count()
	if n > 0 && !b.bad {
		m.Headers = make([]Header, n)
	}
	for i := range m.Headers {
		m.Headers[i].Key = headerName(b.bytes())
		m.Headers[i].Value = b.bytes()
	}
	if b.bad {
		return Message{Offset: r.Offset, Generation: r.Generation, Appended: m.Appended}, &RecordError{ErrMalformed,
			"the record's bytes end early, or it has too many headers"}
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
	return RawRecord{Offset: m.Offset, Generation: m.Generation, Appended: m.Appended.UnixMilli(), Body: b}
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

// body reads a record's body from front to back. bad is set once a read fails.
type body struct {
	rest []byte
	bad  bool
}

func (b *body) varint() int64 {
	v, n := binary.Varint(b.rest)
	if n <= 0 {
		b.bad, b.rest = true, nil
		return 0
	}
	b.rest = b.rest[n:]
	return v
}

// bytes reads a length and that many bytes. It returns nil for the length -1.
func (b *body) bytes() []byte {
	n := b.varint()
	if n == -1 {
		return nil
	}
	if n < 0 || n > int64(len(b.rest)) {
		b.bad, b.rest = true, nil
		return nil
	}
	v := b.rest[:n:n]
	b.rest = b.rest[n:]
	return v
}

// maxHeaders limits the headers of a record: a few bytes can claim millions of
// headers, and each takes 40 bytes in memory.
const maxHeaders = 1000

// count reads the number of headers.
func (b *body) count() int {
	n := b.varint()
	if n < 0 || n > min(maxHeaders, int64(len(b.rest)/2)) {
		b.bad, b.rest = true, nil
		return 0
	}
	return int(n)
}
