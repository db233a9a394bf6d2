package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/segmentio/kafka-go/compress"
)

// row is a line of the growth table. All relays of a row are members of one group.
type row struct {
	partitions int
	processes  int
	size       int
	codec      compress.Compression
}

// growthBatch is the number of records per batch in the sources.
const growthBatch = 50

// growthRows returns rows that each change one parameter.
func growthRows() []row {
	base := row{partitions, 1, recordSize, compress.None}
	with := func(change func(*row)) row {
		r := base
		change(&r)
		return r
	}
	return []row{
		base,
		with(func(r *row) { r.partitions = 1 }),
		with(func(r *row) { r.partitions = 48 }),
		with(func(r *row) { r.processes = 2 }),
		with(func(r *row) { r.processes = 4 }),
		with(func(r *row) { r.size = 2048 }),
		with(func(r *row) { r.codec = compress.Gzip }),
		with(func(r *row) { r.codec = compress.Snappy }),
		with(func(r *row) { r.codec = compress.Lz4 }),
		with(func(r *row) { r.codec = compress.Zstd }),
	}
}

// benchGrowth prints the table row by row.
func benchGrowth(ctx context.Context, p *workspace, pl plan) error {
	fmt.Println("| partitions | relays | bytes | source | records/s | MB/s | CPU-s a million | RSS MB each | twice |")
	fmt.Println("| ---: | ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: |")
	rows := growthRows()
	fmt.Fprintf(os.Stderr, "warming up the broker for %v\n", pl.warmUp)
	for began := time.Now(); time.Since(began) < pl.warmUp; {
		if _, _, err := rows[0].drain(ctx, p, pl.growth); err != nil {
			return fmt.Errorf("warming up: %w", err)
		}
	}
	for _, r := range rows {
		records := pl.growth
		if r.size > recordSize {
			records /= 2
		}
		t, twice, err := r.drain(ctx, p, records)
		if err != nil {
			return fmt.Errorf("%+v: %w", r, err)
		}
		fmt.Printf("| %d | %d | %d | %s | %.0f | %.0f | %.2f | %.0f | %d |\n", r.partitions, r.processes, r.size, codecName(r.codec),
			t.rps, t.rps*float64(r.size)/1e6, t.cpuPerMil, t.rssMB, twice)
	}
	return growWithLoad(ctx, p, pl)
}

func codecName(c compress.Compression) string {
	if c == compress.None {
		return "plain"
	}
	return c.String()
}

// drain lets the row's relays drain a source. All relays join their group before the
// source has records; otherwise the first one would drain it alone. The records are
// appended while the relays are paused, for less than their session timeout.
func (r row) drain(ctx context.Context, p *workspace, records int) (t turn, twice int, err error) {
	source, err := p.topic(ctx, "delay", r.partitions)
	if err != nil {
		return t, 0, err
	}
	j, err := p.jobFor(ctx, sideRelay, source, r.partitions)
	if err != nil {
		return t, 0, err
	}
	defer p.drop(context.WithoutCancel(ctx), source, j.Target, j.DeadLetter)
	var ready []sealed
	l := load{records: records, partitions: r.partitions, batch: growthBatch, size: r.size, codec: r.codec, due: time.Now().Add(-time.Minute)}
	if err := l.each(func(b sealed) error { ready = append(ready, b); return nil }); err != nil {
		return t, 0, err
	}
	var relays []*process
	for range r.processes {
		s, err := p.start(j)
		if err != nil {
			return t, 0, errors.Join(err, stopAll(relays, &usage{}))
		}
		relays = append(relays, s)
	}
	err = p.awaitMembers(ctx, j.Group, r.processes)
	if err == nil {
		err = whilePaused(relays, func() error {
			return p.append(ctx, source, r.partitions, func(put func(sealed) error) error { return putAll(ready, put) })
		})
	}
	if err == nil {
		err = p.await(ctx, j.Target, records, relays...)
	}
	var used usage
	if err = errors.Join(err, stopAll(relays, &used)); err != nil {
		return t, 0, err
	}
	tally, err := p.tally(ctx, j.Target, records)
	if err == nil {
		err = tally.check(false)
	}
	if err != nil {
		return t, 0, err
	}
	return turnOf(tally.rate(), used, records), tally.records - tally.distinct, nil
}

func putAll(all []sealed, put func(sealed) error) error {
	for _, b := range all {
		if err := put(b); err != nil {
			return err
		}
	}
	return nil
}

// whilePaused calls do while the processes are stopped.
func whilePaused(all []*process, do func() error) error {
	for _, s := range all {
		if err := s.pause(); err != nil {
			return err
		}
	}
	begin := time.Now()
	err := do()
	if took := time.Since(begin); took > 4*time.Second {
		fmt.Fprintf(os.Stderr, "the relays stood still for %v: too long, their group may have moved on without them\n", took)
	}
	for _, s := range all {
		err = errors.Join(err, s.resume())
	}
	return err
}

// stopAll stops the processes and adds their CPU times to used. Of their peak memory
// it keeps the largest.
func stopAll(all []*process, used *usage) error {
	var errs []error
	for _, s := range all {
		u, err := s.stop()
		used.cpu += u.cpu
		used.peak = max(used.peak, u.peak)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
