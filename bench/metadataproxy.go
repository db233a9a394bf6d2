package main

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// metadataProxy stands between a client and the brokers. It counts the requests and the bytes, and
// the bytes of responses with metadata. It replaces the brokers' addresses in responses by its
// own.
type metadataProxy struct {
	metadata atomic.Int64

	mu        sync.Mutex
	listeners map[string]net.Listener // by the broker's host:port
	failed    error

	counted sync.Mutex
	spent   spent
}

// spent is what clients ask brokers.
type spent struct {
	kinds map[kmsg.Key]int64 // requests
	bytes int64              // of requests and responses
}

func (s spent) requests() (all int64) {
	for _, n := range s.kinds {
		all += n
	}
	return all
}

// minus returns what was spent since an earlier moment.
func (s spent) minus(earlier spent) spent {
	s.kinds = maps.Clone(s.kinds)
	for kind, n := range earlier.kinds {
		if s.kinds[kind] -= n; s.kinds[kind] == 0 {
			delete(s.kinds, kind)
		}
	}
	s.bytes -= earlier.bytes
	return s
}

// String names the kinds of requests, the most frequent first.
func (s spent) String() string {
	kinds := slices.SortedFunc(maps.Keys(s.kinds), func(a, b kmsg.Key) int {
		return cmp.Or(cmp.Compare(s.kinds[b], s.kinds[a]), cmp.Compare(a, b))
	})
	text := fmt.Sprintf("%d requests, %d bytes", s.requests(), s.bytes)
	for i, kind := range kinds {
		text += fmt.Sprintf("%s %d %s", []string{":", ","}[min(i, 1)], s.kinds[kind], kind.Name())
	}
	return text
}

// count returns what was spent up to now.
func (p *metadataProxy) count() spent {
	p.counted.Lock()
	defer p.counted.Unlock()
	return spent{maps.Clone(p.spent.kinds), p.spent.bytes}
}

// add counts a frame, and a request of the kind if kind is not negative.
func (p *metadataProxy) add(bytes int, kind int16) {
	p.counted.Lock()
	defer p.counted.Unlock()
	if p.spent.bytes += int64(bytes); kind >= 0 {
		p.spent.kinds[kmsg.Key(kind)]++
	}
}

// quiet waits until no frame has passed for half a second. It returns false if ctx ends first.
func (p *metadataProxy) quiet(ctx context.Context) bool {
	for last := int64(-1); ; {
		now := p.count().bytes
		if now == last {
			return true
		}
		if last = now; !sleep(ctx, time.Second/2) {
			return false
		}
	}
}

// newMetadataProxy listens for each broker. It adds listeners for further brokers
// when responses name them.
func newMetadataProxy(brokers []string) (*metadataProxy, error) {
	p := &metadataProxy{listeners: map[string]net.Listener{}, spent: spent{kinds: map[kmsg.Key]int64{}}}
	for _, b := range brokers {
		p.addr(b)
	}
	return p, p.failed
}

// Close closes the listeners. Connections end with the processes that use them.
func (p *metadataProxy) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.listeners {
		l.Close()
	}
}

// addr returns the address of the proxy for a broker.
func (p *metadataProxy) addr(broker string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.listeners[broker]
	if l == nil {
		var err error
		if l, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			p.failed = err
			return broker
		}
		p.listeners[broker] = l
		go p.accept(l, broker)
	}
	return l.Addr().String()
}

func (p *metadataProxy) accept(l net.Listener, broker string) {
	for {
		client, err := l.Accept()
		if err != nil {
			return // closed
		}
		go func() {
			defer client.Close()
			server, err := net.Dial("tcp", broker)
			if err != nil {
				return
			}
			defer server.Close()
			asked := make(chan request, 100)
			go func() {
				defer server.Close()
				defer close(asked)
				p.requests(server, client, asked)
			}()
			p.answers(client, server, asked)
		}()
	}
}

// request is a request without a response yet. Responses on a connection have the
// order of the requests.
type request struct{ key, version int16 }

// requests forwards requests and records what they are.
func (p *metadataProxy) requests(server io.Writer, client io.Reader, asked chan<- request) {
	for {
		frame, err := readFrame(client)
		if err != nil || len(frame) < 8 {
			return
		}
		r := request{int16(binary.BigEndian.Uint16(frame[4:])), int16(binary.BigEndian.Uint16(frame[6:]))}
		p.add(len(frame), r.key)
		asked <- r
		if _, err := server.Write(frame); err != nil {
			return
		}
	}
}

// answers forwards responses with the proxy's addresses, and counts their bytes.
func (p *metadataProxy) answers(client io.Writer, server io.Reader, asked <-chan request) {
	for {
		frame, err := readFrame(server)
		if err != nil {
			return
		}
		p.add(len(frame), -1)
		of := <-asked
		switch kmsg.Key(of.key) {
		case kmsg.Metadata, kmsg.DescribeTopicPartitions:
			p.metadata.Add(int64(len(frame)))
		}
		if frame, err = p.readdress(of, frame); err != nil {
			return
		}
		if _, err := client.Write(frame); err != nil {
			return
		}
	}
}

// readdress replaces the brokers' addresses in a response by the proxy's.
func (p *metadataProxy) readdress(of request, frame []byte) ([]byte, error) {
	var answer kmsg.Response
	switch kmsg.Key(of.key) {
	case kmsg.Metadata:
		answer = kmsg.NewPtrMetadataResponse()
	case kmsg.FindCoordinator:
		answer = kmsg.NewPtrFindCoordinatorResponse()
	default:
		return frame, nil
	}
	answer.SetVersion(of.version)
	head := 8 // size and correlation id
	if answer.IsFlexible() {
		head++ // no tags
	}
	if len(frame) < head {
		return nil, errors.New("a short answer")
	}
	if err := answer.ReadFrom(frame[head:]); err != nil {
		return nil, err
	}
	switch a := answer.(type) {
	case *kmsg.MetadataResponse:
		for i := range a.Brokers {
			a.Brokers[i].Host, a.Brokers[i].Port = p.moved(a.Brokers[i].Host, a.Brokers[i].Port)
		}
	case *kmsg.FindCoordinatorResponse:
		if a.Port > 0 {
			a.Host, a.Port = p.moved(a.Host, a.Port)
		}
		for i := range a.Coordinators {
			a.Coordinators[i].Host, a.Coordinators[i].Port = p.moved(a.Coordinators[i].Host, a.Coordinators[i].Port)
		}
	}
	frame = answer.AppendTo(frame[:head:head])
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
	return frame, nil
}

// moved returns the address of the proxy for a broker.
func (p *metadataProxy) moved(host string, port int32) (string, int32) {
	at, number, _ := net.SplitHostPort(p.addr(net.JoinHostPort(host, strconv.Itoa(int(port)))))
	n, _ := strconv.ParseInt(number, 10, 32)
	return at, int32(n)
}

// readFrame reads a request or response, which starts with its size.
func readFrame(r io.Reader) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n > 256<<20 {
		return nil, fmt.Errorf("a frame of %d bytes", n)
	}
	frame := make([]byte, 4+n)
	copy(frame, size[:])
	_, err := io.ReadFull(r, frame[4:])
	return frame, err
}
