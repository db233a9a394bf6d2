package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"

	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/kafka/recordbatch"
	"github.com/orderclose/orderclose/internal/wire"
)

// load describes the contents of a source topic: orders from 0 on, each in the partition for its key.
type load struct {
	records int
	batch   int       // records per batch; the last batch of a partition has the rest
	due     time.Time // due time of all records
}

// each calls put with the batches, in the order in which they become full. So sources hold exactly the intended batches.
func (l load) each(put func(partition int, batch []byte) error) error {
	open := make([][]wire.RawRecord, partitions)
	seal := func(p int) error {
		b := recordbatch.Encode(nil, open[p], time.Now(), recordbatch.NoProducer)
		open[p] = open[p][:0]
		return put(p, b)
	}
	for number := range l.records {
		m, err := message(number, l.due)
		if err != nil {
			return err
		}
		p := kafka.PartitionOf(m.Key, partitions)
		if open[p] = append(open[p], m.Raw()); len(open[p]) == l.batch {
			if err := seal(p); err != nil {
				return err
			}
		}
	}
	for p := range open {
		if len(open[p]) > 0 {
			if err := seal(p); err != nil {
				return err
			}
		}
	}
	return nil
}

// fill appends the load to the topic, with one goroutine for each partition.
func (p *workspace) fill(ctx context.Context, topic string, l load) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var writers sync.WaitGroup
	lanes := make([]chan []byte, partitions)
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
	err := l.each(func(partition int, batch []byte) error {
		lanes[partition] <- batch
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
	for {
		res, err := p.client.RawProduce(ctx, &kafkago.RawProduceRequest{
			Topic: topic, Partition: partition, RequiredAcks: kafkago.RequireAll, RawRecords: protocol.RawRecordSet{Reader: bytes.NewReader(b)},
		})
		switch {
		case err == nil:
			return res.Error // a partition's error comes with a nil err
		case !errors.Is(err, protocol.ErrNoTopic) || !sleep(ctx, 100*time.Millisecond):
			return err
		}
	}
}
