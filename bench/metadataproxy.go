package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// metadataProxy stands between a client and the brokers, and counts the bytes of
// responses with metadata. It replaces the brokers' addresses in responses by its
// own.
type metadataProxy struct {
	metadata atomic.Int64

	mu        sync.Mutex
	listeners map[string]net.Listener // by the broker's host:port
	failed    error
}

// newMetadataProxy listens for each broker. It adds listeners for further brokers
// when responses name them.
func newMetadataProxy(brokers []string) (*metadataProxy, error) {
	p := &metadataProxy{listeners: map[string]net.Listener{}}
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
		asked <- request{int16(binary.BigEndian.Uint16(frame[4:])), int16(binary.BigEndian.Uint16(frame[6:]))}
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
