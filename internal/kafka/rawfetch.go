package kafka

import (
	"bytes"
	"fmt"
	"io"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	fetchAPI "github.com/segmentio/kafka-go/protocol/fetch"

	"github.com/orderclose/orderclose/internal/kafka/recordbatch"
	"github.com/orderclose/orderclose/internal/wire"
)

// rawFetch is a fetch request for one partition whose answer is kept as bytes. The library's
// decoder drops the batch header, and with it the append time.
type rawFetch struct {
	fetchAPI.Request
	log     wire.LogID // compared by the broker, if it is new enough and log has a topic id
	version int16
	answers *answerPool
	brokers *versionCache
}

// Required implements protocol.RawExchanger. versions has the version of each kind of request
// that the connection uses.
func (r *rawFetch) Required(versions map[protocol.ApiKey]int16) bool {
	r.version = versions[protocol.Fetch]
	return true
}

// RawExchange sends the request and reads the whole answer.
func (r *rawFetch) RawExchange(rw io.ReadWriter) (protocol.Message, error) {
	if r.log.Topic != noTopicID {
		newest, err := r.brokers.at(rw)
		if err != nil {
			return nil, err
		}
		if newest.fetch >= fetchByID {
			r.version = fetchByID
		}
	}
	var err error
	if r.version == fetchByID {
		_, err = rw.Write(r.byID())
	} else {
		err = protocol.WriteRequest(rw, r.version, oneRequest, clientName, &r.Request)
	}
	if err != nil {
		return nil, err
	}
	var buffer *answerBuffer
	body, err := readAnswer(rw, func(size int) []byte {
		buffer = r.answers.get(size)
		return buffer.body
	})
	if err != nil {
		return nil, fmt.Errorf("fetch: %w", err)
	}
	parse := parseAnswer
	if r.version == fetchByID {
		parse = parseAnswerByID
	}
	a, err := parse(body, r.version)
	if err != nil {
		return nil, err
	}
	a.buffer = buffer
	return a, nil
}

// byID encodes the request in version 13, which names the topic by its id.
func (r *rawFetch) byID() []byte {
	p := r.Topics[0].Partitions[0]
	w := newRequest(protocol.Fetch, fetchByID)
	w.tags()
	w.int32(r.ReplicaID)
	w.int32(r.MaxWaitTime)
	w.int32(r.MinBytes)
	w.int32(r.MaxBytes)
	w.int8(r.IsolationLevel)
	w.int32(r.SessionID)
	w.int32(r.SessionEpoch)
	w.count(1)
	w.bytes(r.log.Topic[:])
	w.count(1)
	w.int32(p.Partition)
	w.int32(p.CurrentLeaderEpoch)
	w.int64(p.FetchOffset)
	w.int32(r.log.Epoch) // if the broker's log of this epoch ends below the offset, the broker says where
	w.int64(p.LogStartOffset)
	w.int32(p.PartitionMaxBytes)
	w.tags() // of the partition
	w.tags() // of the topic
	w.count(0)
	w.string("") // rack
	w.tags()
	return w.done()
}

// rawAnswer is the answer to a rawFetch.
type rawAnswer struct {
	code    int16
	records []byte // record batches; the last one may be cut off
	end     int64  // the high watermark, which the broker reads before the records
	// diverged is set, and records are empty, if the log no longer has the last batch that
	// was read before the position.
	diverged *divergence
	buffer   *answerBuffer
}

// divergence is where a log differs from what was read of it: the log of the broker has the
// epoch only up to end.
type divergence struct {
	epoch int32
	end   int64
}

// ApiKey implements protocol.Message.
func (*rawAnswer) ApiKey() protocol.ApiKey { return protocol.Fetch }

func (a *rawAnswer) err() error {
	if a.code != 0 {
		return kafka.Error(a.code)
	}
	return nil
}

// parseAnswer reads a fetch response of one partition, versions 4 to 11.
func parseAnswer(body []byte, version int16) (*rawAnswer, error) {
	d := recordbatch.Cursor{Rest: body}
	d.Skip(4) // throttle time
	a := &rawAnswer{}
	if version >= 7 {
		a.code = int16(d.Uint16())
		d.Skip(4) // session id
	}
	if topics := int32(d.Uint32()); topics == 0 && a.code != 0 {
		return a, nil
	}
	d.Skip(int(d.Uint16())) // topic
	d.Skip(4 + 4)           // number of partitions, partition
	if code := int16(d.Uint16()); code != 0 {
		a.code = code
	}
	a.end = int64(d.Uint64())
	d.Skip(8) // last stable offset
	if version >= 5 {
		d.Skip(8) // log start offset
	}
	if aborted := int32(d.Uint32()); aborted > 0 {
		d.Skip(int(aborted) * 16)
	}
	if version >= 11 {
		d.Skip(4) // preferred read replica
	}
	if n := int32(d.Uint32()); n > 0 {
		a.records = d.Take(int(n))
	}
	if d.Bad {
		return nil, fmt.Errorf("fetch: answer of version %d ends early: %x", version, bytes.Clone(body[:min(len(body), 64)]))
	}
	return a, nil
}

// parseAnswerByID reads a fetch response of one partition, version 13.
func parseAnswerByID(body []byte, version int16) (*rawAnswer, error) {
	d := recordbatch.Cursor{Rest: body}
	d.SkipTags() // of the header
	d.Skip(4)    // throttle time
	a := &rawAnswer{code: int16(d.Uint16())}
	d.Skip(4) // session id
	if topics := d.Length(); topics == 0 && a.code != 0 {
		return a, nil
	}
	d.Skip(16) // topic id
	d.Length() // number of partitions
	d.Skip(4)  // partition
	if code := int16(d.Uint16()); code != 0 {
		a.code = code
	}
	a.end = int64(d.Uint64())
	d.Skip(8 + 8) // last stable offset, log start offset
	for n := d.Length(); n > 0 && !d.Bad; n-- {
		d.Skip(8 + 8) // an aborted transaction
		d.SkipTags()
	}
	d.Skip(4) // preferred read replica
	a.records = d.Take(d.Length())
	for n := d.Uvarint(); n > 0 && !d.Bad; n-- {
		const divergingEpoch = 0
		tag, field := d.Uvarint(), recordbatch.Cursor{Rest: d.Take(int(d.Uvarint()))}
		if tag == divergingEpoch && len(field.Rest) > 0 {
			a.diverged = &divergence{int32(field.Uint32()), int64(field.Uint64())}
			d.Bad = d.Bad || field.Bad
		}
	}
	if d.Bad {
		return nil, fmt.Errorf("fetch: answer of version %d ends early: %x", version, bytes.Clone(body[:min(len(body), 64)]))
	}
	return a, nil
}
