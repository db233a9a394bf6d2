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

	"github.com/orderclose/orderclose/internal/kafka/recordbatch"
)

const (
	// oneRequest is the correlation id of the requests that this package encodes itself. It is
	// constant, because a connection has one request in flight at a time.
	oneRequest = 1
	// clientName is the client id in these requests. It is not Options.ClientID.
	clientName = "orderclose"
)

// rawRequest encodes a request of a version that the client library does not know.
type rawRequest struct{ b []byte }

// newRequest begins a request. It reserves the bytes of the size and writes the header, but
// not the tags that end the header of newer versions.
func newRequest(key protocol.ApiKey, version int16) *rawRequest {
	r := &rawRequest{b: make([]byte, 4, 160)}
	r.int16(int16(key))
	r.int16(version)
	r.int32(oneRequest)
	r.int16(int16(len(clientName)))
	r.bytes([]byte(clientName))
	return r
}

func (r *rawRequest) int8(v int8)    { r.b = append(r.b, byte(v)) }
func (r *rawRequest) int16(v int16)  { r.b = binary.BigEndian.AppendUint16(r.b, uint16(v)) }
func (r *rawRequest) int32(v int32)  { r.b = binary.BigEndian.AppendUint32(r.b, uint32(v)) }
func (r *rawRequest) int64(v int64)  { r.b = binary.BigEndian.AppendUint64(r.b, uint64(v)) }
func (r *rawRequest) bytes(v []byte) { r.b = append(r.b, v...) }

// count begins a compact array of n elements.
func (r *rawRequest) count(n int) { r.b = binary.AppendUvarint(r.b, uint64(n)+1) }

func (r *rawRequest) string(s string) {
	r.count(len(s))
	r.b = append(r.b, s...)
}

// tags writes that a structure has no tagged fields.
func (r *rawRequest) tags() { r.b = append(r.b, 0) }

// done sets the size and returns the whole request.
func (r *rawRequest) done() []byte {
	binary.BigEndian.PutUint32(r.b, uint32(len(r.b)-4))
	return r.b
}

// roundTrip sends a request and returns the answer without its size and correlation id.
func roundTrip(rw io.ReadWriter, r *rawRequest) ([]byte, error) {
	if _, err := rw.Write(r.done()); err != nil {
		return nil, err
	}
	return readAnswer(rw, func(size int) []byte { return make([]byte, size) })
}

// readAnswer reads the answer to a request with the correlation id oneRequest into the buffer
// that room returns.
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

// maxVersions are the highest versions of requests that a broker accepts.
type maxVersions struct{ fetch, metadata int16 }

// versionCache caches the maxVersions of each broker, by its address. During an upgrade
// brokers differ. The client library reports only versions that it knows itself.
type versionCache struct {
	mu  sync.Mutex
	all map[string]knownVersions
}

// knownVersions are the versions that a broker accepted at a time.
type knownVersions struct {
	maxVersions
	at time.Time
}

// versionsTTL bounds the age of a cached answer: a broker may be restarted in another
// version.
const versionsTTL = time.Minute

// at returns the versions that the broker of a connection accepts.
func (b *versionCache) at(rw io.ReadWriter) (maxVersions, error) {
	var broker string
	if c, ok := rw.(interface{ RemoteAddr() net.Addr }); ok && c.RemoteAddr() != nil {
		broker = c.RemoteAddr().String()
	}
	b.mu.Lock()
	k, ok := b.all[broker]
	b.mu.Unlock()
	if ok && time.Since(k.at) < versionsTTL {
		return k.maxVersions, nil
	}
	versions, err := askVersions(rw)
	if err != nil {
		return versions, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.all == nil {
		b.all = map[string]knownVersions{}
	}
	b.all[broker] = knownVersions{versions, time.Now()}
	return versions, nil
}

// askVersions asks a broker which versions it accepts.
func askVersions(rw io.ReadWriter) (n maxVersions, err error) {
	body, err := roundTrip(rw, newRequest(protocol.ApiVersions, 0))
	if err != nil {
		return n, err
	}
	d := recordbatch.Cursor{Rest: body}
	if code := int16(d.Uint16()); code != 0 {
		return n, kafka.Error(code)
	}
	for keys := d.Uint32(); keys > 0 && !d.Bad; keys-- {
		key := protocol.ApiKey(d.Uint16())
		d.Skip(2) // the lowest version
		switch v := int16(d.Uint16()); key {
		case protocol.Fetch:
			n.fetch = v
		case protocol.Metadata:
			n.metadata = v
		}
	}
	return n, nil
}
