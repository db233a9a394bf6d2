package kafka

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
)

const (
	// oneRequest is the correlation id of requests of our own: a connection has one at
	// a time.
	oneRequest = 1
	// clientName is what brokers log of them.
	clientName = "orderclose"
)

// request is a request of a version that the client library does not know.
type request struct{ b []byte }

// newRequest begins a request: room for its size, and the header up to the tags that
// newer versions have.
func newRequest(key protocol.ApiKey, version int16) *request {
	r := &request{b: make([]byte, 4, 160)}
	r.int16(int16(key))
	r.int16(version)
	r.int32(oneRequest)
	r.int16(int16(len(clientName)))
	r.bytes([]byte(clientName))
	return r
}

func (r *request) int8(v int8)    { r.b = append(r.b, byte(v)) }
func (r *request) int16(v int16)  { r.b = binary.BigEndian.AppendUint16(r.b, uint16(v)) }
func (r *request) int32(v int32)  { r.b = binary.BigEndian.AppendUint32(r.b, uint32(v)) }
func (r *request) int64(v int64)  { r.b = binary.BigEndian.AppendUint64(r.b, uint64(v)) }
func (r *request) bytes(v []byte) { r.b = append(r.b, v...) }

// count begins an array of n elements.
func (r *request) count(n int) { r.b = binary.AppendUvarint(r.b, uint64(n)+1) }

func (r *request) string(s string) {
	r.count(len(s))
	r.b = append(r.b, s...)
}

// tags ends a structure: it has no tagged fields.
func (r *request) tags() { r.b = append(r.b, 0) }

// done returns the whole request.
func (r *request) done() []byte {
	binary.BigEndian.PutUint32(r.b, uint32(len(r.b)-4))
	return r.b
}

// ask sends a request and returns the answer, behind its correlation id.
func ask(rw io.ReadWriter, r *request) ([]byte, error) {
	if _, err := rw.Write(r.done()); err != nil {
		return nil, err
	}
	return readAnswer(rw, func(size int) []byte { return make([]byte, size) })
}

// readAnswer reads the answer to a request of our own into what room gives.
func readAnswer(r io.Reader, room func(size int) []byte) ([]byte, error) {
	var head [8]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	size := int64(binary.BigEndian.Uint32(head[:])) - 4
	if id := binary.BigEndian.Uint32(head[4:]); id != oneRequest || size < 0 || size > maxAnswerBytes {
		return nil, fmt.Errorf("unexpected answer of %d bytes with correlation id %d", size, id)
	}
	body := room(int(size))
	_, err := io.ReadFull(r, body)
	return body, err
}

// newest are the newest versions of requests that a broker takes.
type newest struct{ fetch, metadata int16 }

// brokers remembers what each broker takes, by its address. The client library tells only
// of versions that it knows itself; and during an upgrade brokers differ.
type brokers struct {
	mu  sync.Mutex
	all map[string]known
}

// known is what a broker took when it was asked.
type known struct {
	newest
	at time.Time
}

// knownFor is how long it is believed that a broker takes what it took: it may be started
// again in another version.
const knownFor = time.Minute

// at returns what the broker at the other end of a connection takes.
func (b *brokers) at(rw io.ReadWriter) (newest, error) {
	var broker string
	if c, ok := rw.(interface{ RemoteAddr() net.Addr }); ok && c.RemoteAddr() != nil {
		broker = c.RemoteAddr().String()
	}
	b.mu.Lock()
	k, ok := b.all[broker]
	b.mu.Unlock()
	if ok && time.Since(k.at) < knownFor {
		return k.newest, nil
	}
	versions, err := askVersions(rw)
	if err != nil {
		return versions, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.all == nil {
		b.all = map[string]known{}
	}
	b.all[broker] = known{versions, time.Now()}
	return versions, nil
}

// askVersions asks a broker what it takes.
func askVersions(rw io.ReadWriter) (n newest, err error) {
	body, err := ask(rw, newRequest(protocol.ApiVersions, 0))
	if err != nil {
		return n, err
	}
	d := cursor{b: body}
	if code := int16(d.uint16()); code != 0 {
		return n, kafka.Error(code)
	}
	for keys := d.uint32(); keys > 0 && !d.bad; keys-- {
		key := protocol.ApiKey(d.uint16())
		d.skip(2) // the oldest version
		switch v := int16(d.uint16()); key {
		case protocol.Fetch:
			n.fetch = v
		case protocol.Metadata:
			n.metadata = v
		}
	}
	return n, nil
}

// length reads the length of a compact array, string or byte string; 0 also for null.
func (c *cursor) length() int {
	n := c.uvarint()
	if n == 0 {
		return 0
	}
	if n-1 > uint64(len(c.b)) {
		c.bad, c.b = true, nil
		return 0
	}
	return int(n - 1)
}

// uvarint reads an unsigned integer.
func (c *cursor) uvarint() uint64 {
	v, n := binary.Uvarint(c.b)
	if n <= 0 {
		c.bad, c.b = true, nil
		return 0
	}
	c.b = c.b[n:]
	return v
}

// tags skips tagged fields.
func (c *cursor) tags() {
	for range min(c.uvarint(), uint64(len(c.b))) {
		c.uvarint()
		c.skip(int(min(c.uvarint(), uint64(len(c.b))+1)))
	}
}
