package deadletters

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

// modelLog is a log of dead letters and resolutions, from which an index is filled.
type modelLog struct {
	start   [2]int64
	records [2][]wire.Message
}

// copied returns copies of messages, because Read changes headers.
func copied(all []wire.Message) []wire.Message {
	all = slices.Clone(all)
	for i := range all {
		all[i].Headers = slices.Clone(all[i].Headers)
	}
	return all
}

// pending returns the pending dead letters by position, with their causes.
func (m *modelLog) pending() map[Position]string {
	all := map[Position]string{}
	for p, records := range m.records {
		for _, r := range copied(records[m.start[p]:]) {
			if resolution, ok := DecodeResolution(&r); ok {
				delete(all, Position{resolution.Partition, resolution.Offset})
			} else {
				l := Read(p, r)
				all[l.At] = l.Cause
			}
		}
	}
	return all
}

// feed reads what is new, and again what found no room.
func (m *modelLog) feed(x *Index, next *[2]int64) {
	for p := range m.records {
		if next[p] = max(next[p], m.start[p]); next[p] < int64(len(m.records[p])) {
			x.read(p, copied(m.records[p][next[p]:]), Filter{})
		}
		next[p] = int64(len(m.records[p]))
	}
	for from := x.again(); len(from) > 0; from = x.again() {
		for p, offset := range from {
			x.read(p, copied(m.records[p][max(offset, m.start[p]):]), Filter{})
		}
	}
}

// After any history the index has what is pending, as far as it has room, and counts the rest.
func TestIndex_HasWhatIsPendingAndCountsTheRest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, x, next := &modelLog{}, newIndex(false, rapid.IntRange(1, 8).Draw(t, "most")), [2]int64{}
		add := func(p int, r wire.Message) {
			r.Offset, r.Appended = int64(len(m.records[p])), now
			m.records[p] = append(m.records[p], r)
		}
		partition := rapid.IntRange(0, 1)
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				cause := rapid.SampledFrom([]string{"failed", "not_found", ""}).Draw(t, "cause")
				p := partition.Draw(t, "partition")
				for range rapid.SampledFrom([]int{1, 1, 5}).Draw(t, "letters") {
					add(p, wire.DeadLetter(wire.Message{Key: []byte("a")}, "closer", cause, ""))
				}
			},
			"resolve": func(t *rapid.T) {
				all := slices.SortedFunc(maps.Keys(m.pending()), comparePositions)
				if len(all) == 0 {
					t.Skip("none is pending")
				}
				at := rapid.SampledFrom(all).Draw(t, "position")
				add(at.Partition, Resolution{Partition: at.Partition, Offset: at.Offset, How: Redriven}.Encode(nil))
			},
			"retain": func(t *rapid.T) {
				p := partition.Draw(t, "partition")
				m.feed(x, &next)
				before, room := m.pending(), len(x.unlisted) == 0
				m.start[p] = rapid.Int64Range(m.start[p], int64(len(m.records[p]))).Draw(t, "below")
				lost := x.forget(p, m.start[p])
				left := len(m.pending())
				must.That(t, !room || lost == len(before)-left, "lost %d of %d pending ones, %d are left", lost, len(before), left)
			},
			"": func(t *rapid.T) {
				m.feed(x, &next)
				want := m.pending()
				for _, l := range x.Letters(Filter{}) {
					cause, ok := want[l.At]
					must.That(t, ok && cause == l.Cause && l.Resolution == "", "%+v is in the index, pending are %v", l, want)
				}
				if x.Unlisted() > 0 { // retention may have deleted some of these
					n := x.Pending().Total()
					must.That(t, len(x.letters) > x.most/2 && n >= len(want), "%d of %d letters, %d pending, want %d", len(x.letters), x.most, n, len(want))
					return
				}
				counts := Counts{}
				for _, cause := range want {
					counts[cause]++
				}
				got := x.Pending()
				maps.DeleteFunc(got, func(_ string, n int) bool { return n == 0 })
				must.That(t, maps.Equal(got, counts) && len(x.letters) == len(want), "%v, want %v", got, counts)
			},
		})
	})
}

func TestIndex_AResolutionOfALetterWithoutRoomLowersTheCount(t *testing.T) {
	x := newIndex(false, 2)
	letter := wire.DeadLetter(wire.Message{}, "closer", "failed", "")
	batch := make([]wire.Message, 5)
	for i := range batch {
		batch[i] = letter
		batch[i].Offset = int64(i)
	}
	x.read(0, copied(batch), Filter{})
	expect.Equal(t, fmt.Sprint(x.Pending(), x.Unlisted()), "map[failed:2 other:3] 3", "pending")
	x.resolve(Resolution{Offset: 4})
	expect.Equal(t, fmt.Sprint(x.Pending(), len(x.again())), "map[failed:2 other:2] 0", "one without room is resolved")
	x.resolve(Resolution{Offset: 0})
	from := x.again()
	expect.Equal(t, fmt.Sprint(from), "map[0:2]", "half of the room is free: read from")
	x.read(0, copied(batch[2:]), Filter{})
	expect.Equal(t, fmt.Sprint(x.Pending(), x.Unlisted()), "map[failed:2 other:2] 2", "pending")
}

// The label of a metric must be valid UTF-8, or /metrics answers with an error and no metric.
func TestIndex_CountsInvalidCausesAsOther(t *testing.T) {
	x := newIndex(false, maxLetters)
	for i, cause := range []string{"failed", "\xff\xfe", strings.Repeat("x", maxName), strings.Repeat("x", maxName+1), "\x1b[2J\u202e"} {
		x.add(Letter{At: Position{0, int64(i)}, Cause: cause})
	}
	p := x.Pending()
	expect.That(t, p["failed"] == 1 && p[Other] == 2 && len(p) == 4, "%d causes, %d dead letters as other; want 4, and 2", len(p), p[Other])
	expect.Equal(t, p[`\u001b[2J\u202e`], 1, "dead letters whose cause has control characters, in %v", p)
	for i := range int64(5) {
		x.resolve(Resolution{Offset: i})
	}
	expect.Equal(t, x.Pending().Total(), 0, "pending after all were resolved")
}

// What a program writes into the topic can make the index neither large nor wrong.
func TestIndex_HostileContentTakesLittleMemory(t *testing.T) {
	x := newIndex(false, maxLetters)
	long := strings.Repeat("x", 1<<20)
	for i := range int64(1000) {
		x.add(Letter{At: Position{0, i}, Cause: fmt.Sprint("cause ", i), Stage: long, Detail: long, Key: long, Source: Source{Topic: long}})
	}
	p := x.Pending()
	expect.That(t, len(p) <= maxCauses+1 && p.Total() == 1000, "%d causes, %d pending", len(p), p.Total())
	for _, l := range x.Letters(Filter{}) {
		must.That(t, len(l.Stage+l.Detail+l.Key+l.Source.Topic) <= 2*maxText+2*maxName, "%d bytes are kept", len(l.Stage+l.Detail+l.Key+l.Source.Topic))
	}
}

func TestIndex_ALetterTakesAtMost700Bytes(t *testing.T) {
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	const n = 50_000
	before := heap()
	x := newIndex(false, maxLetters)
	batch := make([]wire.Message, 1)
	for i := range n {
		batch[0] = wire.DeadLetter(wire.Message{Topic: "delay_5m", Key: fmt.Append(nil, "order-", i)}, "relay", "failed", "no stock row of SKU-1234567")
		batch[0].Offset, batch[0].Appended = int64(i), now.Add(time.Duration(i)*time.Millisecond)
		x.read(0, batch, Filter{})
	}
	each := float64(heap()-before) / n
	runtime.KeepAlive(x)
	t.Logf("%.0f bytes for each of %d dead letters", each, n)
	expect.That(t, each <= 700, "%.0f bytes for each dead letter, want at most 700", each)
}
