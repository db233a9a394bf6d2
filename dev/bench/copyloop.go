package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/segmentio/kafka-go"
	"golang.org/x/sync/errgroup"
)

// copyBytes limits a fetch so that its records fit into one produce request, which
// must stay below the broker's limit of a megabyte.
const copyBytes = 900_000

// runCopyLoop is the fastest possible use of kafka-go: it fetches a partition and
// produces the records to the same partition of the target, without a group, without
// commits, and without reading the records.
func runCopyLoop(ctx context.Context, j job) error {
	client := &kafka.Client{Addr: kafka.TCP(j.Brokers...), Timeout: 10 * time.Second, Transport: &kafka.Transport{MetadataTTL: 2 * time.Second}}
	loops, ctx := errgroup.WithContext(ctx)
	for p := range partitions {
		loops.Go(func() error { return copyPartition(ctx, client, j, p) })
	}
	return loops.Wait()
}

func copyPartition(ctx context.Context, client *kafka.Client, j job, partition int) error {
	var records []kafka.Record
	for offset := int64(0); ctx.Err() == nil; {
		res, err := client.Fetch(ctx, &kafka.FetchRequest{
			Topic: j.Source, Partition: partition, Offset: offset,
			MinBytes: 1, MaxBytes: copyBytes, MaxWait: time.Second,
		})
		if err == nil {
			err = res.Error
		}
		if err != nil {
			return fmt.Errorf("fetch %d at %d: %w", partition, offset, err)
		}
		records = records[:0]
		for {
			r, err := res.Records.ReadRecord()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return fmt.Errorf("read %d at %d: %w", partition, offset, err)
			}
			offset = r.Offset + 1
			records = append(records, *r)
		}
		if len(records) == 0 {
			continue
		}
		out, err := client.Produce(ctx, &kafka.ProduceRequest{
			Topic: j.Target, Partition: partition, RequiredAcks: kafka.RequireAll,
			Records: kafka.NewRecordReader(records...),
		})
		if err == nil {
			err = out.Error
		}
		if err != nil {
			return fmt.Errorf("produce %d records to %d: %w", len(records), partition, err)
		}
	}
	return nil
}
