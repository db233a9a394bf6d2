package kafka

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// maxAnswerBytes bounds the length of an answer, in bytes. A larger length is damaged.
const maxAnswerBytes = 256 << 20

// oneRequest is the correlation id of requests. It is constant, because a connection has one
// request in flight at a time.
const oneRequest = 1

// errNotOffered means that a broker does not know a request, or no version of it that this program
// knows. The request was not sent.
var errNotOffered = errors.New("the broker does not know this request")

// exchange sends a request of the client library, which encodes it, and returns its answer.
func (c *conn) exchange(req kafka.Request) (kafka.Response, error) {
	version, ok := c.versions[req.ApiKey()]
	if !ok {
		return nil, fmt.Errorf("%w: %v", errNotOffered, req.ApiKey())
	}
	if req.ApiKey() == protocol.JoinGroup { // the group shows its client id
		return protocol.RoundTrip(c, version, oneRequest, *c.by.member.Load(), req)
	}
	return c.RoundTrip(req)
}

// query sends a request that the client library does not know, not in the version that is needed, or not without a copy of its
// records. Package kmsg encodes the request, and decodes its answer. query implements kmsg.Requestor.
type query struct {
	transport *transport
	route     route
	version   int16 // the latest version to send
	// room returns a buffer of size bytes for the answer; nil: a new one. The byte slices of
	// the answer lie in that buffer.
	room func(size int) []byte
	// tail replaces the last field of the request, which must be empty; it begins with its length. nil: nothing is replaced.
	tail []byte
}

// copiedTail is how much of a tail is copied behind its request, in bytes. So a small tail is sent with the request, and of a large one
// no copy is made.
const copiedTail = 16 << 10

// Request implements kmsg.Requestor.
func (q query) Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	return exchange(ctx, q.transport, q.route, func(c *conn) (kmsg.Response, error) { return c.query(req, q) })
}

// query sends a request of package kmsg and returns its answer.
func (c *conn) query(req kmsg.Request, q query) (kmsg.Response, error) {
	version, ok := c.offered[protocol.ApiKey(req.Key())]
	if !ok {
		return nil, fmt.Errorf("%w: %s", errNotOffered, kmsg.NameForKey(req.Key()))
	}
	req.SetVersion(min(version, q.version))
	c.out = c.by.formatter.AppendRequest(c.out[:0], req, oneRequest)
	tail := q.tail
	if tail != nil {
		c.out = c.out[:len(c.out)-4] // the length of the empty field
		binary.BigEndian.PutUint32(c.out, uint32(len(c.out)-4+len(tail)))
		n := min(len(tail), copiedTail)
		c.out, tail = append(c.out, tail[:n]...), tail[n:]
	}
	if _, err := c.Write(c.out); err != nil {
		return nil, err
	}
	if len(tail) > 0 {
		if _, err := c.Write(tail); err != nil {
			return nil, err
		}
	}
	var head [8]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return nil, err
	}
	size := int64(binary.BigEndian.Uint32(head[:])) - 4
	if id := binary.BigEndian.Uint32(head[4:]); id != oneRequest || size < 0 || size > maxAnswerBytes {
		return nil, fmt.Errorf("unexpected answer of %d bytes with correlation id %d", size, id)
	}
	if q.room == nil {
		q.room = func(size int) []byte { return make([]byte, size) }
	}
	body := q.room(int(size))
	if _, err := io.ReadFull(c, body); err != nil {
		return nil, err
	}
	rest, answer := kbin.Reader{Src: body}, req.ResponseKind()
	if answer.IsFlexible() {
		for n := rest.Uvarint(); n > 0 && rest.Ok(); n-- { // the tags of the header
			rest.Uvarint()
			rest.Span(int(rest.Uvarint()))
		}
	}
	if err := answer.ReadFrom(rest.Src); err != nil || !rest.Ok() {
		return nil, fmt.Errorf("%s: answer of version %d cannot be decoded: %w: %x",
			kmsg.NameForKey(req.Key()), req.GetVersion(), err, body[:min(len(body), 64)])
	}
	if of, ok := answer.(kmsg.ThrottleResponse); ok {
		if millis, _ := of.Throttle(); millis > 0 { // a quota is used up: the broker reads no request of this connection meanwhile
			c.muted = min(time.Duration(millis)*time.Millisecond, requestTimeout)
			if now, logged := sinceStart(), c.broker.quota.Load(); logged == 0 || now-logged >= int64(time.Minute) {
				c.broker.quota.Store(now)
				c.by.log.Warn("a quota of Kafka delays requests", "broker", c.broker.address, "request", kmsg.NameForKey(req.Key()), "milliseconds", millis)
			}
		}
	}
	return answer, nil
}
