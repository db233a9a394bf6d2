package main

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// Otherwise a client would bypass it.
func TestMetadataProxy_ResponsesContainTheProxysAddress(t *testing.T) {
	p := must.Get(newMetadataProxy([]string{"127.0.0.1:9092"}))(t)
	defer p.Close()
	for _, version := range []int16{1, 8, 10} {
		answer := kmsg.NewPtrMetadataResponse()
		answer.SetVersion(version)
		answer.Brokers = []kmsg.MetadataResponseBroker{{NodeID: 1, Host: "127.0.0.1", Port: 9092}}
		head := make([]byte, 8)
		if answer.IsFlexible() {
			head = append(head, 0)
		}
		frame := answer.AppendTo(head)
		moved := must.Get(p.readdress(request{int16(kmsg.Metadata), version}, frame))(t)
		got := kmsg.NewPtrMetadataResponse()
		got.SetVersion(version)
		err := got.ReadFrom(moved[len(head):])
		must.That(t, err == nil && int(binary.BigEndian.Uint32(moved)) == len(moved)-4, "version %d: %v, %x", version, err, moved)
		host, port := p.moved("127.0.0.1", 9092)
		b := got.Brokers[0]
		expect.That(t, b.Host == host && b.Port == port && port != 9092, "version %d: the broker is at %s:%d", version, b.Host, b.Port)
		again, _ := readFrame(bytes.NewReader(moved))
		expect.That(t, bytes.Equal(again, moved), "version %d: the frame is read as %x", version, again)
	}
}

func TestMetadataProxy_CountsRequestsAndBytesOfBothDirections(t *testing.T) {
	p := must.Get(newMetadataProxy(nil))(t)
	p.add(10, int16(kmsg.Fetch))
	before := p.count()
	for range 2 {
		p.add(100, int16(kmsg.ListOffsets))
		p.add(50, -1) // a response
	}
	got := p.count().minus(before)
	expect.That(t, got.requests() == 2 && got.String() == "2 requests, 300 bytes: 2 ListOffsets", "counted %v", got)
	if got := before.String(); got != "1 requests, 10 bytes: 1 Fetch" {
		t.Errorf("counted %v before", got)
	}
}
