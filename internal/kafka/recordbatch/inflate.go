package recordbatch

import (
	"bytes"
	"fmt"
	"io"
	"slices"

	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/segmentio/kafka-go/compress"
	"github.com/twmb/franz-go/pkg/kbin"
)

// maxWindow bounds the window of zstd, in bytes. The levels up to 19 need no more.
const maxWindow = 8 << 20

// unzstd refuses a batch that is larger than maxInflated after decompression. It is safe for concurrent use.
var unzstd, _ = zstd.NewReader(nil, zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderMaxMemory(maxInflated))

// inflate decompresses b. It allocates no size that b declares before it has compared it with a limit.
// The result may have more than room bytes.
func inflate(compression compress.Compression, b []byte, room int) ([]byte, error) {
	switch compression {
	case compress.Snappy:
		return inflateSnappy(b, room)
	case compress.Zstd:
		return unzstd.DecodeAll(b, nil)
	}
	codec := compression.Codec()
	if codec == nil {
		return nil, fmt.Errorf("unknown compression %d", compression)
	}
	r := codec.NewReader(bytes.NewReader(b))
	defer r.Close()
	return io.ReadAll(io.LimitReader(r, int64(room)+1))
}

// Clients in Java write the header of the library xerial, of which this is the beginning, and then
// blocks of snappy, each after its length. Other clients write one block of snappy.
var xerialMagic = []byte("\x82SNAPPY\x00")

const xerialHeaderSize = 16

func inflateSnappy(b []byte, room int) (out []byte, err error) {
	rest := kbin.Reader{Src: b}
	framed := len(b) >= xerialHeaderSize && bytes.HasPrefix(b, xerialMagic)
	if framed {
		rest.Span(xerialHeaderSize)
	}
	for len(rest.Src) > 0 {
		size := len(rest.Src)
		if framed {
			size = int(rest.Int32())
		}
		block := rest.Span(size)
		n, err := snappy.DecodedLen(block)
		if err != nil {
			return nil, err
		}
		if n > room-len(out) {
			return nil, errNoRoom
		}
		out = slices.Grow(out, n)
		decoded, err := snappy.Decode(out[len(out):cap(out)], block)
		if err != nil {
			return nil, err
		}
		out = out[:len(out)+len(decoded)]
	}
	return out, nil
}
