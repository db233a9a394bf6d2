package kafka

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/joingroup"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/orderclose/orderclose/internal/kafka/recordbatch"
)

// maxAnswerBytes bounds the length of an answer, in bytes. A larger length is damaged.
const maxAnswerBytes = 256 << 20

// oneRequest is the correlation id of requests. It is constant, because a connection has one
// request in flight at a time.
const oneRequest = 1

// errNotOffered means that a broker does not know a request, or no version of it that this program
// knows. The request was not sent.
var errNotOffered = errors.New("the broker does not know this request")

// message is a request of a kind, or of a version, that the client library does not know. Package
// kmsg encodes it, and decodes its answer.
type message struct {
	kmsg.Request
	// version chooses the version of the request. offered has the highest version of each request
	// that the broker accepts. If version returns false, the request is not sent.
	version func(offered map[protocol.ApiKey]int16) (version int16, ok bool)
	// room returns a buffer of size bytes for the answer; nil: a new one. The byte slices of
	// the answer lie in that buffer.
	room func(size int) []byte
}

// ApiKey implements protocol.Message.
func (m *message) ApiKey() protocol.ApiKey { return protocol.ApiKey(m.Key()) }

// messageAnswer is the answer to a message.
type messageAnswer struct{ kmsg.Response }

// ApiKey implements protocol.Message.
func (a messageAnswer) ApiKey() protocol.ApiKey { return protocol.ApiKey(a.Key()) }

// exchange sends a request and returns its answer, which has requestTimeout and brokerWait.
func (c *conn) exchange(req kafka.Request) (kafka.Response, error) {
	if !c.renewAt.IsZero() && time.Now().After(c.renewAt) {
		if err := c.logIn(); err != nil {
			return nil, err
		}
	}
	c.awaits(brokerWait(req))
	switch r := req.(type) {
	case *message:
		return c.exchangeMessage(r)
	}
	if _, ok := c.versions[req.ApiKey()]; !ok {
		return nil, fmt.Errorf("%w: %v", errNotOffered, req.ApiKey())
	}
	switch r := req.(type) {
	case *joingroup.Request: // the group shows its client id
		return protocol.RoundTrip(c, c.versions[protocol.JoinGroup], oneRequest, *c.by.member.Load(), r)
	}
	return c.RoundTrip(req)
}

// exchangeMessage is exchange for requests that package kmsg encodes.
func (c *conn) exchangeMessage(m *message) (kafka.Response, error) {
	version, ok := m.version(c.offered)
	if !ok {
		return nil, fmt.Errorf("%w: %v", errNotOffered, m.ApiKey())
	}
	m.SetVersion(version)
	if _, err := c.Write(kmsg.NewRequestFormatter(kmsg.FormatterClientID(c.by.clientID)).AppendRequest(nil, m.Request, oneRequest)); err != nil {
		return nil, err
	}
	var head [8]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return nil, err
	}
	size := int64(binary.BigEndian.Uint32(head[:])) - 4
	if id := binary.BigEndian.Uint32(head[4:]); id != oneRequest || size < 0 || size > maxAnswerBytes {
		return nil, fmt.Errorf("unexpected answer of %d bytes with correlation id %d", size, id)
	}
	var body []byte
	if m.room != nil {
		body = m.room(int(size))
	} else {
		body = make([]byte, size)
	}
	if _, err := io.ReadFull(c, body); err != nil {
		return nil, err
	}
	d, answer := recordbatch.Cursor{Rest: body}, m.ResponseKind()
	if answer.IsFlexible() {
		d.SkipTags() // of the header
	}
	if err := answer.ReadFrom(d.Rest); err != nil || d.Bad {
		return nil, fmt.Errorf("%s: answer of version %d cannot be decoded: %w: %x", kmsg.NameForKey(m.Key()), version, err, body[:min(len(body), 64)])
	}
	return messageAnswer{answer}, nil
}
