package deadletters

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/orderclose/orderclose/internal/wire"
)

// The index behaves like a plain map.
func TestIndex_BehavesLikeAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x, model, settled, next := newIndex(), map[Position]string{}, map[Position]wire.ResolutionKind{}, [2]int64{}
		position := rapid.Custom(func(t *rapid.T) Position {
			p := rapid.IntRange(0, 1).Draw(t, "partition")
			return Position{p, rapid.Int64Range(0, next[p]+1).Draw(t, "offset")}
		})
		t.Repeat(map[string]func(*rapid.T){
			"addDeadLetter": func(t *rapid.T) {
				p := rapid.IntRange(0, 1).Draw(t, "partition")
				at := Position{p, next[p]}
				next[p] += rapid.SampledFrom([]int64{1, 1, 1, 63, blockLen - 1, 3 * blockLen}).Draw(t, "gap")
				model[at] = rapid.SampledFrom([]string{"failed", "not_found", ""}).Draw(t, "cause")
				x.add(Letter{At: at, Cause: model[at]})
			},
			"settle": func(t *rapid.T) {
				at := position.Draw(t, "position")
				how := rapid.SampledFrom([]wire.ResolutionKind{wire.Redriven, wire.Discarded}).Draw(t, "how")
				if _, pending := model[at]; pending {
					delete(model, at)
					settled[at] = how
				}
				x.resolve(wire.Resolution{Partition: at.Partition, Offset: at.Offset, How: how}, next[at.Partition])
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
				if _, n := x.forget(below.Partition, below.Offset); n != gone {
					t.Fatalf("forgot %d pending ones, want %d", n, gone)
				}
			},
			"": func(t *rapid.T) {
				counts := map[string]int{}
				for at, cause := range model {
					counts[cause]++
					if e := x.find(at); e == nil || e.how != pending {
						t.Fatalf("%v is pending, and found as %+v", at, e)
					}
				}
				for at, want := range settled {
					if e := x.find(at); e == nil || resolutions[e.how] != want {
						t.Fatalf("%v is %s, and found as %+v", at, want, e)
					}
				}
				for cause, n := range x.Pending() {
					if counts[cause] != n {
						t.Fatalf("%d of %q are pending, want %d", n, cause, counts[cause])
					}
				}
			},
		})
	})
}

// The label of a metric must be valid UTF-8, or /metrics answers with an error and no metric.
func TestIndex_CountsInvalidCausesAsOther(t *testing.T) {
	x := newIndex()
	for i, cause := range []string{"failed", "\xff\xfe", strings.Repeat("x", maxName), strings.Repeat("x", maxName+1)} {
		x.add(Letter{At: Position{0, int64(i)}, Cause: cause})
	}
	if p := x.Pending(); p["failed"] != 1 || p[Other] != 2 || len(p) != 3 {
		t.Errorf("%d causes, %d dead letters as other; want 3, and 2", len(p), p[Other])
	}
}

// They counted as pending, so the log names their number, as that of the others.
func TestIndex_RetentionDeletesWhatLeftBecauseOfTheBound(t *testing.T) {
	x := newIndex()
	for offset := range int64(5) {
		x.add(Letter{At: Position{0, offset}})
	}
	x.partitions[0].leave()
	x.partitions[0].leave()
	if changed, lost := x.forget(0, 3); !changed || lost != 3 {
		t.Errorf("changed %v, %d lost; want the 2 that left and one more", changed, lost)
	}
}
