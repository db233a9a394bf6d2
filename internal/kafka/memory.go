package kafka

import (
	"sync"

	"orderclose"
)

const (
	// pooledBytes is the least answer whose memory is worth keeping.
	pooledBytes = 64 << 10
	// mostPooled is the largest that is kept: an answer of the usual size with its
	// header, or a first batch that is a little larger.
	mostPooled = 2 * fetchMaxBytes
)

// memory is what an answer was read into, and the records that were found in it.
type memory struct {
	body    []byte
	records []orderclose.RawRecord
}

// memories keeps those that their readers have done with: writing a megabyte over one
// that was used before spares clearing it and collecting it, which was a fifth of a
// relay's time and half of its memory.
//
// An exchange that was given up may go on writing into its memory for a while. Nobody
// gets the answer then, so that nobody gives it back.
type memories struct {
	scribble bool // over what was given back, so that tests see who reads it still
	pool     sync.Pool
}

// get returns a memory whose body has so many bytes, of any content.
func (m *memories) get(size int) *memory {
	if size < pooledBytes {
		return &memory{body: make([]byte, size)}
	}
	if kept, ok := m.pool.Get().(*memory); ok && cap(kept.body) >= size {
		kept.body = kept.body[:size]
		return kept
	}
	return &memory{body: make([]byte, size, max(size, fetchMaxBytes+pooledBytes))}
}

// put takes a memory back.
func (m *memories) put(used *memory) {
	if m.scribble {
		for i := range used.body {
			used.body[i] = 0xdb
		}
	}
	clear(used.records) // let go of what was inflated beside the body
	if n := cap(used.body); n >= pooledBytes && n <= mostPooled {
		used.records = used.records[:0]
		m.pool.Put(used)
	}
}

// buffers keeps the memory of batches that were acked, to be written over by the next
// batch of any append. A relay appends by hundreds of producer ids: one buffer for each
// would be hundreds of megabytes after a burst.
type buffers struct{ pool sync.Pool }

// get returns an empty buffer, or nil.
func (b *buffers) get() []byte {
	if kept, ok := b.pool.Get().(*[]byte); ok {
		return (*kept)[:0]
	}
	return nil
}

// put takes a buffer back that nobody reads any more.
func (b *buffers) put(used []byte) { b.pool.Put(&used) }
