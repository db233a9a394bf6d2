package deadletters

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/orderclose/orderclose/internal/wire"
)

// The index behaves like a plain map.
func TestIndex_BehavesLikeAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x, model, settled, next := NewIndex(), map[Position]string{}, map[Position]wire.ResolutionKind{}, [2]int64{}
		position := rapid.Custom(func(t *rapid.T) Position {
			p := rapid.IntRange(0, 1).Draw(t, "partition")
			return Position{p, rapid.Int64Range(0, next[p]+1).Draw(t, "offset")}
		})
		t.Repeat(map[string]func(*rapid.T){
			"addDeadLetter": func(t *rapid.T) {
				p := rapid.IntRange(0, 1).Draw(t, "partition")
				at := Position{p, next[p]}
				next[p] += rapid.SampledFrom([]int64{1, 1, 1, 63, pageBits - 1, 3 * pageBits}).Draw(t, "gap")
				model[at] = rapid.SampledFrom([]string{"failed", "not_found", ""}).Draw(t, "cause")
				x.Add(at, model[at])
			},
			"settle": func(t *rapid.T) {
				at := position.Draw(t, "position")
				how := rapid.SampledFrom([]wire.ResolutionKind{wire.Redriven, wire.Discarded}).Draw(t, "how")
				if _, pending := model[at]; pending {
					delete(model, at)
					settled[at] = how
				}
				x.Resolve(wire.Resolution{Partition: at.Partition, Offset: at.Offset, How: how})
			},
			"forget": func(t *rapid.T) {
				below, gone := position.Draw(t, "below"), 0
				for at := range model {
					if at.Partition == below.Partition && at.Offset < below.Offset {
						delete(model, at)
						gone++
					}
				}
				for at := range settled {
					if at.Partition == below.Partition && at.Offset < below.Offset {
						delete(settled, at)
					}
				}
				if n := x.Forget(below.Partition, below.Offset); n != gone {
					t.Fatalf("forgot %d, want %d", n, gone)
				}
			},
			"": func(t *rapid.T) {
				counts, oldest := map[string]int{}, [2]int64{-1, -1}
				for at, cause := range model {
					counts[cause]++
					if o := &oldest[at.Partition]; *o < 0 || at.Offset < *o {
						*o = at.Offset
					}
					if how, ok := x.Find(at); !ok || how != "" {
						t.Fatalf("%v is pending, and found as %q, %v", at, how, ok)
					}
				}
				for at, want := range settled {
					if how, ok := x.Find(at); !ok || how != want {
						t.Fatalf("%v is %s, and found as %q, %v", at, want, how, ok)
					}
				}
				for cause, n := range x.Pending() {
					if counts[cause] != n {
						t.Fatalf("%d of %q are pending, want %d", n, cause, counts[cause])
					}
				}
				for p, want := range oldest {
					if at, ok := x.Oldest(p); ok != (want >= 0) || ok && at.Offset != want {
						t.Fatalf("the oldest is %v, %v; want %d", at, ok, want)
					}
				}
			},
		})
	})
}

// The label of a metric must be valid UTF-8, or /metrics answers with an error and no metric.
func TestIndex_CountsInvalidCausesAsOther(t *testing.T) {
	x := NewIndex()
	for i, cause := range []string{"failed", "\xff\xfe", strings.Repeat("x", maxName), strings.Repeat("x", maxName+1)} {
		x.Add(Position{0, int64(i)}, cause)
	}
	if p := x.Pending(); p["failed"] != 1 || p[Other] != 2 || len(p) != 3 {
		t.Errorf("%d causes, %d dead letters as other; want 3, and 2", len(p), p[Other])
	}
}

// With any number of causes and dead letters, the memory depends only on the range of
// offsets.
func TestIndex_AMillionDeadLettersUseLittleMemory(t *testing.T) {
	x := NewIndex()
	const n = 1_000_000
	for i := range n {
		x.Add(Position{0, int64(i)}, fmt.Sprintf("cause %d", i%1000))
	}
	pages := 0
	for _, partitions := range x.pending {
		pages += len(partitions[0].pages)
	}
	if len(x.pending) > maxCauses+1 || pages > (maxCauses+1)*(n/pageBits+1) {
		t.Errorf("%d causes, %d pages", len(x.pending), pages)
	}
	for i := range n {
		x.Resolve(wire.Resolution{Offset: int64(i), How: wire.Discarded})
	}
	for cause, left := range x.Pending() {
		if left != 0 || len(x.pending[cause][0].pages) != 0 {
			t.Errorf("%d of %q are left in %d pages", left, cause, len(x.pending[cause][0].pages))
		}
	}
}
