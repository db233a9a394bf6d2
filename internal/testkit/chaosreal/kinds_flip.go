//go:build linux

package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/orderclose/orderclose/internal/testkit/scenario"
)

// flipRecovered flips a bit in a segment of a topic while everything is without power. When the broker starts, it finds the damage, and
// deletes the rest of the log, whether synced or not.
func (w *world) flipRecovered(e event) error {
	r := rand.New(rand.NewPCG(e.N, 0xf119))
	return w.cutEverything(e, func() error {
		var paths []string
		for _, topic := range slices.Concat(w.delayTopics(), []string{w.cfg.Topics.Close, w.cfg.Topics.Events}) {
			paths = append(paths, w.segments(topic)...)
		}
		if len(paths) == 0 {
			return errors.New("no log has records")
		}
		path := paths[r.IntN(len(paths))]
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		at := r.Int64N(info.Size())
		note("      a bit flips in byte %d of %d of %s", at, info.Size(), filepath.Base(filepath.Dir(path)))
		return flip(path, at, r.IntN(8))
	}, nil)
}

// passTime is how long relays may take to pass a batch that cannot be read.
const passTime = 2 * time.Minute

// flipRead flips a bit of a batch while no relay runs, starts the processes, waits until the relays have passed the batch, and flips the
// bit back: the judge reads all records.
func (w *world) flipRead(e event) error {
	var f flipped
	err := w.cutEverything(e, nil, func() error {
		return w.eventually(func() (err error) { f, err = w.flipUnread(e); return err })
	})
	if f.path == "" {
		return err
	}
	for deadline := time.Now().Add(passTime); err == nil && !w.passed(f) && w.ctx.Err() == nil; w.wait(200 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.violation("the relays stand still at %s/%d/%d, where a bit was flipped", f.topic, f.partition, f.last)
			break
		}
	}
	return errors.Join(err, flip(f.path, f.at, f.bit))
}

// flipped is a bit that was flipped in a batch. last is the last offset of the batch.
type flipped struct {
	path      string
	at        int64
	bit       int
	topic     string
	partition int
	last      int64
}

// atCRC is the position of the checksum in a batch. It covers what follows it. The length comes before it: behind a damaged length a
// broker itself finds no more batches, so no relay can pass it.
const atCRC = 17

// flipUnread flips a bit of the last batch of a partition, from the checksum on. It fails if the relays have passed the batch.
func (w *world) flipUnread(e event) (flipped, error) {
	r := rand.New(rand.NewPCG(e.N, 0xf119))
	topic := w.delayTopic(e)
	for _, p := range r.Perm(w.cfg.Partitions) {
		for _, path := range w.segments(fmt.Sprint(topic, "-", p)) {
			log, err := os.ReadFile(path)
			if err != nil {
				return flipped{}, err
			}
			at, size := lastBatch(log)
			if size == 0 {
				continue
			}
			batch := log[at : at+size]
			f := flipped{path: path, at: int64(at + atCRC + r.IntN(size-atCRC)), bit: r.IntN(8), topic: topic, partition: p,
				last: int64(binary.BigEndian.Uint64(batch)) + int64(binary.BigEndian.Uint32(batch[23:]))}
			if w.passed(f) {
				continue
			}
			note("      bit %d flips in byte %d of the %d of the batch up to offset %d of %s/%d", f.bit, f.at-int64(at), size, f.last, topic, p)
			return f, flip(path, f.at, f.bit)
		}
	}
	return flipped{}, fmt.Errorf("the relays have done every record of %s", topic)
}

// lastBatch returns where the last whole batch of a segment begins, and its size.
func lastBatch(log []byte) (at, size int) {
	const smallest = 61
	for next := 0; len(log)-next >= smallest; {
		n := 12 + int(binary.BigEndian.Uint32(log[next+8:])) // the length does not count the base offset and itself
		if n < smallest || n > len(log)-next {
			break
		}
		at, size, next = next, n, next+n
	}
	return at, size
}

// passed reports whether the relays have committed an offset behind the batch.
func (w *world) passed(f flipped) bool {
	commits, err := w.kafka.Commits(w.ctx, scenario.Groups(w.cfg)[f.topic], f.topic, w.cfg.Partitions)
	return err == nil && commits[f.partition].Offset > f.last
}

// segments returns the paths of the segments with records of the partitions of the first broker whose folders begin with a name.
func (w *world) segments(name string) (paths []string) {
	all, _ := filepath.Glob(filepath.Join(w.cluster.powered[w.cluster.brokers[0]].Dir, name+"*", "*.log"))
	for _, path := range all {
		if info, err := os.Stat(path); err == nil && info.Size() > 0 {
			paths = append(paths, path)
		}
	}
	return paths
}

// flip inverts a bit of a byte of a file.
func flip(path string, at int64, bit int) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	var b [1]byte
	if _, err = f.ReadAt(b[:], at); err == nil {
		b[0] ^= 1 << bit
		_, err = f.WriteAt(b[:], at)
	}
	return errors.Join(err, f.Sync())
}
