package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"

	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/wire"
)

// load describes the contents of a source topic: orders first, first + 1 …, each in the
// partition for its key.
type load struct {
	first      int
	records    int
	partitions int
	batch      int       // records per batch; the last batch of a partition has the rest
	size       int       // approximate size of a record in bytes
	due        time.Time // due time of all records
	// message, if not nil, returns other records than those of orders, from their number, which
	// begins with 0. Then first, size and due have no meaning.
	message func(number int) (wire.Message, error)
}

// sealed is an encoded batch and its partition.
type sealed struct {
	partition int
	bytes     []byte
}

// each calls put with the batches, in the order in which they become full.
func (l load) each(put func(sealed) error) error {
	open := make([]batch, l.partitions)
	seal := func(p int) error {
		b := open[p].seal(time.Now())
		open[p] = batch{records: open[p].records[:0]}
		return put(sealed{p, b})
	}
	for number := range l.records {
		m, err := l.make(number)
		if err != nil {
			return err
		}
		p := kafka.PartitionOf(m.Key, l.partitions)
		if open[p].add(m); open[p].count == l.batch {
			if err := seal(p); err != nil {
				return err
			}
		}
	}
	for p := range open {
		if open[p].count > 0 {
			if err := seal(p); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l load) make(number int) (wire.Message, error) {
	if l.message != nil {
		return l.message(number)
	}
	return message(l.first+number, l.due, l.size)
}

// fill appends the load to the topic, with one goroutine for each partition.
func (p *workspace) fill(ctx context.Context, topic string, l load) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var writers sync.WaitGroup
	lanes := make([]chan []byte, l.partitions)
	for i := range lanes {
		lanes[i] = make(chan []byte, 8)
		writers.Go(func() {
			for b := range lanes[i] {
				if ctx.Err() != nil {
					continue
				}
				if err := p.produce(ctx, topic, i, b); err != nil {
					cancel(fmt.Errorf("fill %s/%d: %w", topic, i, err))
				}
			}
		})
	}
	err := l.each(func(b sealed) error {
		lanes[b.partition] <- b.bytes
		return context.Cause(ctx)
	})
	for _, lane := range lanes {
		close(lane)
	}
	writers.Wait()
	return errors.Join(err, context.Cause(ctx))
}

// produce appends one encoded batch unchanged. The topic may be newer than the metadata of the client.
func (p *workspace) produce(ctx context.Context, topic string, partition int, b []byte) error {
	size := binary.BigEndian.AppendUint32(nil, uint32(len(b))) // the raw record set starts with its size
	for {
		res, err := p.client.RawProduce(ctx, &kafkago.RawProduceRequest{
			Topic: topic, Partition: partition, RequiredAcks: kafkago.RequireAll,
			RawRecords: protocol.RawRecordSet{Reader: io.MultiReader(bytes.NewReader(size), bytes.NewReader(b))},
		})
		switch {
		case err == nil:
			return res.Error // a partition's error comes with a nil err
		case !errors.Is(err, protocol.ErrNoTopic) || !sleep(ctx, 100*time.Millisecond):
			return err
		}
	}
}
