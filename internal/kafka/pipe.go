package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"

	"orderclose"
	"orderclose/internal/partition"
)

// goneAfter is for how long a partition may not exist before it is given up: one that
// was just made, or moves, is unknown for a moment too.
const goneAfter = 4 * time.Second

// Idempotent returns a function that appends idempotently: a batch whose answer
// was lost is sent again byte for byte under the same producer id and sequence,
// and the broker drops the repeat. The function is for one goroutine and one
// claim: whoever owns the partition next has a producer id of its own. It gives up
// with partition.ErrNoPartition what goes to a partition that is gone. trying, if
// not nil, is called before each try, of which none takes longer than 5 s. repeated,
// if not nil, is called when records may have been written twice, because the
// broker no longer knew the producer id under which they had been sent.
func (c *Cluster) Idempotent(trying func(), repeated func(records int)) orderclose.AppendFunc {
	if trying == nil {
		trying = func() {}
	}
	if repeated == nil {
		repeated = func(int) {}
	}
	return (&pipe{cluster: c, id: -1, trying: trying, repeated: repeated}).append
}

// pipe has one request under way at a time.
type pipe struct {
	cluster  *Cluster
	trying   func()
	repeated func(records int)
	id       int64 // -1: ask for one
	epoch    int16
	next     map[topicPartition]int32 // sequences, under this id
}

type topicPartition struct {
	topic     string
	partition int
}

func (p *pipe) append(ctx context.Context, topic string, number int, records []orderclose.RawRecord) (time.Time, error) {
	tp := topicPartition{topic, number}
	pauses := partition.NewBackOff()
	var batch []byte // made once for each producer id: a repeat must be identical
	unanswered := false
	var gone time.Time // since when the broker says that there is no such partition
	for {
		p.trying()
		at, err := p.try(ctx, tp, records, &batch)
		switch {
		case err == nil:
			return at, nil
		case errors.Is(err, orderclose.ErrRefused):
			if unanswered { // an earlier try may have been taken all the same
				p.retire()
			}
			return time.Time{}, err
		case unknownProducer(err):
			p.retire()
			batch = nil
			if unanswered {
				p.repeated(len(records))
			}
		default:
			unanswered = unanswered || batch != nil && !unsent(err)
		}
		switch {
		case !unsent(err) && !errors.Is(err, kafka.UnknownTopicOrPartition):
			gone = time.Time{}
		case gone.IsZero():
			gone = time.Now()
		case time.Since(gone) >= goneAfter:
			return time.Time{}, p.giveUp(unanswered, errors.Join(partition.ErrNoPartition, err))
		}
		if pauses.Say() {
			p.cluster.opts.Logger.Warn("append failed, trying again", "topic", topic, "partition", number, "err", err)
		}
		if !partition.Sleep(ctx, pauses.NextBackOff()) {
			return time.Time{}, p.giveUp(unanswered, fmt.Errorf("%w: %w", err, ctx.Err()))
		}
	}
}

// giveUp returns why an append was given up.
func (p *pipe) giveUp(unanswered bool, err error) error {
	if !unanswered {
		return err
	}
	p.retire() // other content under a used sequence would be acked and dropped
	return errors.Join(partition.ErrUnanswered, err)
}

// unsent says whether the client knew nowhere to send the request to.
func unsent(err error) bool {
	return errors.Is(err, protocol.ErrNoTopic) || errors.Is(err, protocol.ErrNoPartition)
}

// try sends the batch once, after making it if there is none.
func (p *pipe) try(ctx context.Context, tp topicPartition, records []orderclose.RawRecord, batch *[]byte) (time.Time, error) {
	first := *batch == nil
	if first {
		if err := p.init(ctx); err != nil {
			return time.Time{}, err
		}
		*batch = splice(p.cluster.buffers.get(), records, time.Now(), sequenced{p.id, p.epoch, p.next[tp]})
	}
	at, err := p.cluster.produce(ctx, tp.topic, tp.partition, len(records), *batch)
	if errors.Is(err, kafka.DuplicateSequenceNumber) {
		err = nil // an earlier try was taken, and its answer lost
	}
	if err == nil {
		if first { // a try that went unanswered may still be reading it
			p.cluster.buffers.put(*batch)
		}
		p.next[tp] += int32(len(records)) // wraps where the broker's does: after 2^31 - 1 comes 0
		if p.next[tp] < 0 {
			p.next[tp] &= 1<<31 - 1
		}
	}
	return at, err
}

// init asks for a producer id, if there is none.
func (p *pipe) init(ctx context.Context) error {
	if p.id >= 0 {
		return nil
	}
	res, err := p.cluster.client.InitProducerID(ctx, &kafka.InitProducerIDRequest{ProducerID: -1, ProducerEpoch: -1})
	if err == nil {
		err = res.Error
	}
	if err == nil && res.Producer.ProducerID < 0 {
		err = errors.New("the broker gave none yet")
	}
	if err != nil {
		return fmt.Errorf("asking for a producer id: %w", err)
	}
	p.id, p.epoch, p.next = int64(res.Producer.ProducerID), int16(res.Producer.ProducerEpoch), map[topicPartition]int32{}
	return nil
}

// retire gives the producer id up, and with it every sequence.
func (p *pipe) retire() { p.id = -1 }

// unknownProducer says whether the broker does not know the producer id, or the
// sequences that it was used with, any more.
func unknownProducer(err error) bool {
	return errors.Is(err, kafka.OutOfOrderSequenceNumber) || errors.Is(err, kafka.InvalidProducerEpoch) || errors.Is(err, kafka.UnknownProducerId)
}
