package recordbatch

import "encoding/binary"

// Cursor reads the fields of a message of the Kafka protocol, forward. After the end of the
// bytes it returns zeros, and Bad is set.
type Cursor struct {
	Rest []byte // what was not read yet
	Bad  bool   // a read failed
}

// Take returns the next n bytes, without copying them.
func (c *Cursor) Take(n int) []byte {
	if n < 0 || n > len(c.Rest) {
		c.Bad, c.Rest = true, nil
		return nil
	}
	b := c.Rest[:n:n]
	c.Rest = c.Rest[n:]
	return b
}

// Varint reads a zigzag-encoded integer.
func (c *Cursor) Varint() int64 {
	u := c.Uvarint()
	return int64(u>>1) ^ -int64(u&1)
}

// Uvarint reads an unsigned variable-length integer.
func (c *Cursor) Uvarint() uint64 {
	v, n := binary.Uvarint(c.Rest)
	if n <= 0 {
		c.Bad, c.Rest = true, nil
		return 0
	}
	c.Rest = c.Rest[n:]
	return v
}

// SkipTags skips tagged fields.
func (c *Cursor) SkipTags() {
	for range min(c.Uvarint(), uint64(len(c.Rest))) {
		c.Uvarint()
		c.Take(int(min(c.Uvarint(), uint64(len(c.Rest))+1)))
	}
}
