package idfilter

import (
	"context"
	"fmt"

	"github.com/bits-and-blooms/bloom/v3"
	"github.com/redis/go-redis/v9"
)

// The last bit of a bitmap is a mark, which is set before any other. If Redis loses the bitmap, the
// mark is lost too; checkouts that add ids after that do not set it again.

// key returns the name of a bitmap in Redis.
func (f *Filter) key(generation int64) string {
	return fmt.Sprintf("%sids:{%d}", f.o.Prefix, generation)
}

// positions returns the bits of an id.
func (s state) positions(id string) []int64 {
	locations := bloom.Locations([]byte(id), s.hashes)
	bits := make([]int64, len(locations))
	for i, l := range locations {
		bits[i] = int64(l % uint64(s.bits))
	}
	return bits
}

// markAt returns the position of the mark.
func (s state) markAt() int64 { return int64(s.bits) }

// mark creates a bitmap that has nothing but its mark.
func (f *Filter) mark(ctx context.Context, s state) error {
	ctx, cancel := context.WithTimeout(ctx, 2*redisTimeout)
	defer cancel()
	_, err := f.o.Redis.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.Del(ctx, f.key(s.generation))
		p.SetBit(ctx, f.key(s.generation), s.markAt(), 1)
		return nil
	})
	if err != nil {
		return fmt.Errorf("redis: %w", err)
	}
	return nil
}

// add sets the bits of an id. A client that has gone is no reason to stop: the filter would break.
func (f *Filter) add(ctx context.Context, s state, id string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), redisTimeout)
	defer cancel()
	_, err := f.o.Redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, bit := range s.positions(id) {
			p.SetBit(ctx, f.key(s.generation), bit, 1)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("redis: %w", err)
	}
	return nil
}

// has reports whether all bits of an id are set, and whether the bitmap is intact: it has its mark.
func (f *Filter) has(ctx context.Context, s state, id string) (found, intact bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, redisTimeout)
	defer cancel()
	var bits []*redis.IntCmd
	var mark *redis.IntCmd
	if _, err := f.o.Redis.TxPipelined(ctx, func(p redis.Pipeliner) error {
		for _, bit := range s.positions(id) {
			bits = append(bits, p.GetBit(ctx, f.key(s.generation), bit))
		}
		mark = p.GetBit(ctx, f.key(s.generation), s.markAt())
		return nil
	}); err != nil {
		return false, false, fmt.Errorf("redis: %w", err)
	}
	found = true
	for _, bit := range bits {
		found = found && bit.Val() == 1
	}
	return found, mark.Val() == 1, nil
}

// mergeScript adds the bits of the second bitmap to the first, if that has its mark.
var mergeScript = redis.NewScript(`
if redis.call('GETBIT', KEYS[1], ARGV[1]) == 0 then return 0 end
redis.call('BITOP', 'OR', KEYS[1], KEYS[1], KEYS[2])
redis.call('DEL', KEYS[2])
return 1`)

// full reports whether more than half of the bits are set, as in a filter with as many ids as it
// was built for.
func (f *Filter) full(ctx context.Context, s state) (bool, error) {
	set, err := f.o.Redis.BitCount(ctx, f.key(s.generation), nil).Result()
	if err != nil {
		return false, fmt.Errorf("redis: %w", err)
	}
	return uint64(set) > uint64(s.bits)/2, nil
}
