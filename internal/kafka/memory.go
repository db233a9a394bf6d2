package kafka

import (
	"sync"

	"github.com/orderclose/orderclose/internal/wire"
)

const (
	// pooledBytes is the size of the smallest answer whose buffer is pooled, in bytes.
	pooledBytes = 64 << 10
	// mostPooled is the capacity of the largest buffer that is pooled, in bytes: an answer of
	// the usual size with its header, or a first batch that is a little larger.
	mostPooled = 2 * fetchMaxBytes
)

// answerBuffer holds the bytes of an answer, and the records that were found in them.
type answerBuffer struct {
	body    []byte
	records []wire.RawRecord
}

// answerPool pools the buffers of answers that are no longer used. Overwriting a used
// megabyte saves clearing and garbage-collecting a new one, which was a fifth of a relay's
// time and half of its memory.
type answerPool struct {
	poison bool // overwrite the bytes that are put back; see Options.PoisonFreedMemory
	pool   sync.Pool
}

// get returns a buffer whose body has size bytes of any content.
func (m *answerPool) get(size int) *answerBuffer {
	if size < pooledBytes {
		return &answerBuffer{body: make([]byte, size)}
	}
	if kept, ok := m.pool.Get().(*answerBuffer); ok && cap(kept.body) >= size {
		kept.body = kept.body[:size]
		return kept
	}
	return &answerBuffer{body: make([]byte, size, max(size, fetchMaxBytes+pooledBytes))}
}

// put takes back a buffer that is no longer used.
func (m *answerPool) put(used *answerBuffer) {
	if m.poison {
		for i := range used.body {
			used.body[i] = 0xdb
		}
	}
	clear(used.records) // release the memory of decompressed batches, which is not in body
	if n := cap(used.body); n >= pooledBytes && n <= mostPooled {
		used.records = used.records[:0]
		m.pool.Put(used)
	}
}
