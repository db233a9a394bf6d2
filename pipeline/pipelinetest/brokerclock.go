package pipelinetest

import (
	"encoding/binary"
	"hash/crc32"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Positions of fields in the header of a record batch.
const (
	atLength         = 8
	atCRC            = 17
	atAttributes     = 21
	atFirstTimestamp = 27
	atMaxTimestamp   = 35
	headerSize       = 61
	logAppendTimeBit = 0x08
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// stamps makes the brokers of a cluster set append times by clocks of their own, as real
// brokers do for topics with message.timestamp.type=LogAppendTime.
//
// kfake sets an append time only if the client asks for it by the batch's attribute, which a
// real broker refuses. kfake then uses the time of the bubble and does not update the
// checksum, although it verifies the checksum when it looks for an offset by time. So stamps
// changes each produced batch before kfake reads it: it sets the attribute, kfake's time and
// the checksum. It changes each fetched batch again: it replaces kfake's time by the broker's
// time and computes the checksum again. It finds the broker's time by kfake's checksum.
type stamps struct {
	clock func(node int32) time.Time

	mu    sync.Mutex
	given map[uint32]uint64 // broker's time in unix milliseconds, by kfake's checksum
}

// write changes the batches and times of requests.
func (s *stamps) write(c *kfake.Cluster) {
	c.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		now := uint64(s.clock(c.CurrentNode()).UnixMilli())
		for _, t := range req.(*kmsg.ProduceRequest).Topics {
			for _, p := range t.Partitions {
				if b := p.Records; len(b) >= headerSize {
					b[atAttributes+1] |= logAppendTimeBit
					s.give(b, now)
				}
			}
		}
		return nil, nil, false
	})
	c.ControlKey(int16(kmsg.ListOffsets), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		ahead := time.Until(s.clock(c.CurrentNode())).Milliseconds()
		for _, t := range req.(*kmsg.ListOffsetsRequest).Topics {
			for i := range t.Partitions {
				if t.Partitions[i].Timestamp > 0 {
					t.Partitions[i].Timestamp -= ahead
				}
			}
		}
		return nil, nil, false
	})
}

func (s *stamps) give(b []byte, now uint64) {
	sum := stamp(b, uint64(time.Now().UnixMilli()))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.given[sum] = now
}

// stamp sets the append time of a batch, and returns its checksum.
func stamp(b []byte, at uint64) uint32 {
	binary.BigEndian.PutUint64(b[atFirstTimestamp:], at)
	binary.BigEndian.PutUint64(b[atMaxTimestamp:], at)
	sum := crc32.Checksum(b[atAttributes:], castagnoli)
	binary.BigEndian.PutUint32(b[atCRC:], sum)
	return sum
}

// restore sets the brokers' times in batches that kfake returns.
func (s *stamps) restore(batches []byte) {
	for len(batches) >= headerSize {
		length := int(binary.BigEndian.Uint32(batches[atLength:])) + atLength + 4
		if length > len(batches) {
			return
		}
		s.mu.Lock()
		at, ok := s.given[binary.BigEndian.Uint32(batches[atCRC:])]
		s.mu.Unlock()
		if ok {
			stamp(batches[:length], at)
		}
		batches = batches[length:]
	}
}

// listen wraps the listeners of the virtual network, to correct the answers of brokers.
func (s *stamps) listen(inner func(network, address string) (net.Listener, error)) func(network, address string) (net.Listener, error) {
	node := int32(-1) // kfake listens in the order of node ids
	return func(network, address string) (net.Listener, error) {
		l, err := inner(network, address)
		if err != nil {
			return nil, err
		}
		node++
		return &stampingListener{l, s, node}, nil
	}
}

type stampingListener struct {
	net.Listener
	stamps *stamps
	node   int32
}

// Accept implements net.Listener.
func (l *stampingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &stampingConn{Conn: c, listener: l, asked: map[uint32]asked{}}, nil
}

// asked is the kind of a request.
type asked struct{ key, version int16 }

// stampingConn is a broker's end of a connection. kfake reads from one goroutine at a time,
// one whole request after the other, and writes each answer by one call.
type stampingConn struct {
	net.Conn
	listener *stampingListener

	head [12]byte // start of the present request: size, key, version, correlation id
	read int      // bytes of that request

	mu    sync.Mutex
	asked map[uint32]asked // requests without an answer, by correlation id
}

// Read implements net.Conn.
func (c *stampingConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	for _, octet := range b[:n] {
		if c.read < len(c.head) {
			c.head[c.read] = octet
		}
		if c.read++; c.read == len(c.head) {
			a := asked{int16(binary.BigEndian.Uint16(c.head[4:])), int16(binary.BigEndian.Uint16(c.head[6:]))}
			c.mu.Lock()
			c.asked[binary.BigEndian.Uint32(c.head[8:])] = a
			c.mu.Unlock()
		}
		if c.read >= len(c.head) && c.read == int(binary.BigEndian.Uint32(c.head[:]))+4 {
			c.read = 0
		}
	}
	return n, err
}

// Write implements net.Conn.
func (c *stampingConn) Write(b []byte) (int, error) {
	id := binary.BigEndian.Uint32(b[4:])
	c.mu.Lock()
	a := c.asked[id]
	delete(c.asked, id)
	c.mu.Unlock()
	key := kmsg.Key(a.key)
	if key != kmsg.Fetch && key != kmsg.Produce {
		return c.Conn.Write(b)
	}
	res := kmsg.ResponseForKey(a.key)
	res.SetVersion(a.version)
	head := 8
	if res.IsFlexible() {
		head++ // no tags
	}
	if err := res.ReadFrom(b[head:]); err != nil {
		return 0, err
	}
	c.listener.correct(res)
	answer := res.AppendTo(append([]byte(nil), b[:head]...))
	if _, err := c.Conn.Write(answer); err != nil { // as long as before
		return 0, err
	}
	return len(b), nil
}

// correct sets the broker's times in an answer.
func (l *stampingListener) correct(res kmsg.Response) {
	switch res := res.(type) {
	case *kmsg.FetchResponse:
		for _, t := range res.Topics {
			for _, p := range t.Partitions {
				l.stamps.restore(p.RecordBatches)
			}
		}
	case *kmsg.ProduceResponse:
		for _, t := range res.Topics {
			for i := range t.Partitions {
				if t.Partitions[i].LogAppendTime >= 0 {
					t.Partitions[i].LogAppendTime = l.stamps.clock(l.node).UnixMilli()
				}
			}
		}
	}
}
