package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/testkit/measure"
)

// burstBatch is the number of records in each batch of the burst's source.
const burstBatch = 50

func measureBurst(ctx context.Context, p *workspace, records int) (burst, error) {
	fmt.Fprintf(os.Stderr, "burst: %d records\n", records)
	l, err := openPipeline(ctx, p, 0, func(*job) {})
	if err != nil {
		return burst{}, err
	}
	b, err := l.burst(ctx, records)
	_, stopped := l.close(ctx)
	return b, errors.Join(err, stopped)
}

// burst appends records that are due as soon as the bucket allows, and waits for
// them.
func (l *pipeline) burst(ctx context.Context, records int) (burst, error) {
	// A record that is appended after this moment has its release time after due.
	due := orderclose.CeilMilli(time.Now().Add(bucketLength))
	err := l.workspace.fill(ctx, l.job.Source, load{records: records, partitions: partitions, batch: burstBatch, size: recordSize, due: due})
	if err != nil {
		return burst{}, err
	}
	if left := time.Until(due); left < bucketLength/10 {
		return burst{}, fmt.Errorf("%d records were appended only %v before they are due: this machine is too busy", records, left)
	}
	got, err := l.receive(ctx, records)
	if err != nil {
		return burst{}, err
	}
	b := burst{Records: records}
	for _, r := range got {
		b.Last = max(b.Last, measure.Millis(r.late))
		if r.late < 0 {
			b.Early++
		}
	}
	return b, nil
}
