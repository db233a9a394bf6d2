package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"sync"
	"time"
)

// receipts tells the driver process which messages a worker has received. Each receipt is the
// number of the message and the time of its receipt in unix nanoseconds. A worker that
// acknowledges messages must call flush before, so that no receipt is lost with the worker.
type receipts struct {
	run string
	mu  sync.Mutex
	out io.Writer
	buf []byte
}

// receiptSize is the number of bytes of a receipt.
const receiptSize = 16

// add records a message that was received at a time. A message of another run has the number -1.
func (r *receipts) add(body []byte, at time.Time) {
	number, ok := numberIn(body, r.run)
	if !ok {
		number = -1
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.buf = binary.LittleEndian.AppendUint64(r.buf, uint64(number))
	r.buf = binary.LittleEndian.AppendUint64(r.buf, uint64(at.UnixNano()))
}

// flush writes all receipts to the driver.
func (r *receipts) flush() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.buf) == 0 {
		return nil
	}
	_, err := r.out.Write(r.buf)
	r.buf = r.buf[:0]
	return err
}

// addNow is add and flush.
func (r *receipts) addNow(body []byte, at time.Time) error {
	r.add(body, at)
	return r.flush()
}

// flushOften flushes every few milliseconds until ctx ends, for messages that need no
// acknowledgement.
func (r *receipts) flushOften(ctx context.Context) {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			r.flush()
			return
		case <-tick.C:
			r.flush()
		}
	}
}

// readReceipts passes each receipt on until the worker has ended. A receipt that a killed worker
// wrote in part does not count.
func readReceipts(in io.Reader, receive func(number int, at int64)) error {
	buffered := bufio.NewReaderSize(in, 1<<20)
	var one [receiptSize]byte
	for {
		if _, err := io.ReadFull(buffered, one[:]); err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				return nil
			}
			return err
		}
		receive(int(int64(binary.LittleEndian.Uint64(one[:8]))), int64(binary.LittleEndian.Uint64(one[8:])))
	}
}
