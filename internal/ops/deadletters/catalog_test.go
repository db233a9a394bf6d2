package deadletters

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

// catalog returns a catalog of the log. Its caller polls.
func (f *fakeLog) catalog(most int) *Catalog {
	c := NewCatalog(f, deadTopic, slog.New(slog.DiscardHandler))
	c.maxLetters = cmp.Or(most, c.maxLetters)
	return c
}

const maxPage = 1000

// addLetter appends a dead letter that a stage made of a record with this key.
func (f *fakeLog) addLetter(p int, key, cause, stage, source string, at time.Time) Position {
	m := wire.DeadLetter(wire.Message{Topic: source, Key: []byte(key)}, stage, cause, "")
	return f.put(deadTopic, p, m.Raw(), at)
}

func (f *fakeLog) resolve(at Position, how wire.ResolutionKind) {
	m := wire.Resolution{Partition: at.Partition, Offset: at.Offset, How: how}.Encode(nil)
	f.put(deadTopic, at.Partition, m.Raw(), now)
}

// retain deletes the records of a partition below an offset.
func (f *fakeLog) retain(p int, below int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.start[p] = below
}

// recreate deletes and recreates the dead-letter topic.
func (f *fakeLog) recreate(id byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.records, f.start, f.id = map[string][2][]wire.RawRecord{}, [2]int64{}, [16]byte{id}
}

// fed polls once.
func (c *Catalog) fed(t *testing.T) *Catalog {
	t.Helper()
	must.Do(t, c.poll(t.Context()))
	return c
}

// all returns all pages of a query.
func (c *Catalog) all(q Query) (positions []Position) {
	for {
		page := c.Page(q)
		positions = append(positions, page.Positions...)
		if page.Next == nil {
			return positions
		}
		q.After = page.Next
	}
}

// brief returns a state without its hours.
func brief(s CatalogState) string {
	s.ByHour = nil
	return fmt.Sprintf("%+v", s)
}

// keys lists a page and returns the keys.
func (c *Catalog) keys(t *testing.T, q Query) string {
	t.Helper()
	l := must.Get(c.List(t.Context(), q))(t)
	var keys []string
	for _, letter := range l.Letters {
		keys = append(keys, letter.Key)
	}
	return strings.Join(keys, " ")
}

// Pages select what dlq ls selects: both agree after any history of the topic.
func TestCatalog_PagesSelectWhatTheTopicLists(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		log := &fakeLog{most: rapid.IntRange(1, 5).Draw(rt, "most")}
		log.recreate(byte(rapid.IntRange(0, 1).Draw(rt, "ids")))
		c := log.catalog(0)
		position := rapid.Custom(func(rt *rapid.T) Position {
			p := rapid.IntRange(0, 1).Draw(rt, "partition")
			return Position{p, rapid.Int64Range(0, int64(len(log.records[deadTopic][p]))).Draw(rt, "offset")}
		})
		moment := rapid.Custom(func(rt *rapid.T) time.Time {
			return now.Add(time.Duration(rapid.IntRange(-200, 1).Draw(rt, "hours")) * time.Hour)
		})
		key, cause := rapid.SampledFrom([]string{"a", "b", ""}), rapid.SampledFrom([]string{"failed", "not_found"})
		stage, source := rapid.SampledFrom([]string{"relay", "closer"}), rapid.SampledFrom([]string{"order-close", "delay_1m"})
		rt.Repeat(map[string]func(*rapid.T){
			"add": func(rt *rapid.T) {
				log.addLetter(rapid.IntRange(0, 1).Draw(rt, "partition"), key.Draw(rt, "key"), cause.Draw(rt, "cause"), stage.Draw(rt, "stage"),
					source.Draw(rt, "source"), moment.Draw(rt, "at"))
			},
			"resolve": func(rt *rapid.T) {
				log.resolve(position.Draw(rt, "position"), rapid.SampledFrom([]wire.ResolutionKind{wire.Redriven, wire.Discarded, "other"}).Draw(rt, "how"))
			},
			"poll": func(*rapid.T) { c.fed(t) },
			"retain": func(rt *rapid.T) {
				at := position.Draw(rt, "below")
				log.retain(at.Partition, max(log.start[at.Partition], at.Offset))
			},
			"recreate": func(rt *rapid.T) {
				if log.id != ([16]byte{}) && rapid.IntRange(0, 9).Draw(rt, "seldom") == 0 {
					log.recreate(log.id[0] + 1)
				}
			},
			"": func(rt *rapid.T) {
				c.fed(t)
				optional := func(g *rapid.Generator[string], name string) string {
					return rapid.OneOf(rapid.Just(""), g).Draw(rt, name)
				}
				q := Query{Limit: rapid.IntRange(1, 4).Draw(rt, "limit"), All: rapid.Bool().Draw(rt, "all")}
				q.Cause, q.Stage, q.Source, q.Order = optional(cause, "cause"), optional(stage, "stage"), optional(source, "source"), optional(key, "order")
				q.Since = rapid.OneOf(rapid.Just(time.Time{}), moment).Draw(rt, "since")
				list := Filter{Cause: q.Cause, Stage: q.Stage, Source: q.Source, Order: q.Order} // OffsetAt of a log whose times fall is not exact
				letters, x, err := log.topic().List(t.Context(), list, q.All, 0)
				if err != nil {
					rt.Fatal(err)
				}
				var want []Position
				for _, l := range letters {
					if !q.Since.After(l.AppendedAt) {
						want = append(want, l.At)
					}
				}
				got := c.all(q)
				inOrder := slices.Clone(got)
				slices.Reverse(inOrder)
				newest := [2]Position{{0, -1}, {1, -1}}
				for _, at := range inOrder {
					if newest[at.Partition].Offset >= at.Offset {
						rt.Fatalf("the offsets of a partition are not in order: %v", got)
					}
					newest[at.Partition] = at
				}
				slices.SortFunc(got, comparePositions)
				if !slices.Equal(got, want) {
					rt.Fatalf("%+v: %v, want %v", q, got, want)
				}
				if n := c.CountPending(q); !q.All && n != len(got) {
					rt.Fatalf("%+v: counts %d pending, and lists %v", q, n, got)
				}
				if q.Cause+q.Stage+q.Source+q.Order == "" && q.Since.IsZero() {
					checkState(rt, c.State(), letters, x)
				}
			},
		})
	})
}

// checkState compares a state with all pending dead letters.
func checkState(t *rapid.T, s CatalogState, letters []Letter, x *Index) {
	bySource, oldest, pending := map[string]int{}, time.Time{}, 0
	for _, l := range letters {
		if l.Resolution == "" {
			pending++
			bySource[l.Source.Topic]++
			if oldest.IsZero() || l.AppendedAt.Before(oldest) {
				oldest = l.AppendedAt
			}
		}
	}
	inHours := s.Before
	for _, h := range s.ByHour {
		inHours += h.Pending
	}
	for cause, n := range x.Pending() {
		must.That(t, s.Pending[cause] == n, "%d of %q are pending, want %d", s.Pending[cause], cause, n)
	}
	for source, n := range s.BySource {
		must.That(t, bySource[source] == n, "%d of %q are pending, want %d", n, source, bySource[source])
	}
	if inHours != pending || !s.Oldest.Equal(oldest) || !s.Complete || s.Read != s.Total {
		t.Fatalf("%d in hours, want %d; oldest %v, want %v; %s", inHours, pending, s.Oldest, oldest, brief(s))
	}
}

func TestCatalog_CountsPendingDeadLettersByHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &fakeLog{}
		c := log.catalog(0)
		hour := time.Now().Truncate(time.Hour)
		for _, ago := range []time.Duration{chartHours * time.Hour, (chartHours - 1) * time.Hour, time.Millisecond, 0, -2 * time.Hour} {
			log.addLetter(0, "a", "failed", "closer", "order-close", hour.Add(-ago))
		}
		c.fed(t)
		s := c.State()
		by := func(i int) int { return s.ByHour[i].Pending }
		if len(s.ByHour) != chartHours || s.Before != 1 || by(0) != 1 || by(chartHours-2) != 1 || by(chartHours-1) != 2 || !s.ByHour[chartHours-1].From.Equal(hour) {
			t.Errorf("%d before, %v", s.Before, s.ByHour)
		}
		time.Sleep(time.Hour)
		c.fed(t)
		s = c.State()
		expect.That(t, s.Before == 2 && by(chartHours-1) == 1, "an hour later: %d before, %v", s.Before, s.ByHour)
	})
}

// A page costs the records of the page, however many there are.
func TestCatalog_PagesThroughAHundredThousand(t *testing.T) {
	log := &fakeLog{most: 1000}
	const n = 100_000
	causes := []string{"failed", "not_found", "bad_due", "no_key"}
	var rare []Position
	for i := range n {
		at := log.addLetter(i%2, fmt.Sprint("order-", i), causes[i%4], "closer", "order-close", now.Add(time.Duration(i)*time.Millisecond))
		if i%10_000 == 0 {
			rare = append(rare, at)
		}
	}
	for _, at := range rare {
		log.resolve(at, wire.Discarded)
	}
	c := log.catalog(0).fed(t)
	if s := c.State(); s.Letters != n || s.Pending["failed"] != n/4-len(rare) || s.Total != n+int64(len(rare)) {
		t.Fatalf("%s", brief(s))
	}
	positions := c.all(Query{Limit: maxPage, All: true})
	for i, at := range positions {
		want := n - 1 - i
		must.That(t, at == (Position{want % 2, int64(want / 2)}), "%v is at index %d, newest first", at, i)
	}
	must.That(t, len(positions) == n, "%d positions", len(positions))
	for i := 0; i < n; i += 9_973 {
		log.little = 0
		l, err := c.List(t.Context(), Query{All: true, After: &positions[i]})
		if err != nil || l.Gone > 0 || len(l.Letters) != min(defaultPage, n-1-i) || log.little > 60 {
			t.Fatalf("after %v: %d letters, %d gone, %v; %d records were read", positions[i], len(l.Letters), l.Gone, err, log.little)
		}
		for j, letter := range l.Letters {
			must.That(t, letter.Key == fmt.Sprint("order-", n-2-i-j), "letter %d after %v is %s", j, positions[i], letter.Key)
		}
	}
	log.little = 0
	if got := c.keys(t, Query{Order: "order-77777"}); got != "order-77777" || log.little > 3 {
		t.Errorf("search: %q; %d records were read", got, log.little)
	}
	log.little = 0
	far := []Position{{1, 40_000}, {0, 20}, {0, 40_000}, {0, 22}, {0, 21}}
	if l := must.Get(c.Letters(t.Context(), far))(t); len(l.Letters) != 5 || l.Letters[0].Key != "order-80001" ||
		l.Letters[4].Key != "order-42" || log.little != 9 {
		t.Errorf("far from one another: %d letters; %d records were read in fetches of 3", len(l.Letters), log.little)
	}
	if got := c.all(Query{Cause: "failed", All: true, Limit: maxPage}); len(got) != n/4 {
		t.Errorf("%d failed", len(got))
	}
}

func TestCatalog_ShowsHowALetterWasResolvedSince(t *testing.T) {
	log := &fakeLog{}
	at := log.addDeadLetter(t, 0, "a", "failed", now)
	log.addDeadLetter(t, 0, "b", "failed", now)
	c := log.catalog(0).fed(t)
	log.resolve(at, wire.Discarded)
	log.resolve(at, wire.Redriven) // the first one counts
	expect.Equal(t, c.keys(t, Query{}), "b a", "before it is read")
	c.fed(t)
	expect.Equal(t, c.keys(t, Query{}), "b", "pending")
	l := must.Get(c.Letters(t.Context(), []Position{at, {0, 1}, {0, 2}}))(t)
	expect.That(t, len(l.Letters) == 2 && l.Letters[0].Resolution == wire.Discarded && l.Letters[1].Resolution == "" && l.Gone == 1, "%+v", l)
}

func TestCatalog_LeavesOutWhatRetentionDeleted(t *testing.T) {
	log := &fakeLog{}
	for i := range 10 {
		log.addDeadLetter(t, 0, fmt.Sprint(i), "failed", now)
	}
	c := log.catalog(0).fed(t)
	log.retain(0, 4) // and the catalog has not noticed yet
	l := must.Get(c.List(t.Context(), Query{Limit: 8}))(t)
	if len(l.Letters) != 6 || l.Letters[5].Key != "4" || l.Gone != 2 || l.Next == nil {
		t.Errorf("%d letters, %d gone, next %v", len(l.Letters), l.Gone, l.Next)
	}
	c.fed(t)
	if s := c.State(); s.Letters != 6 || s.Pending["failed"] != 6 {
		t.Errorf("%s", brief(s))
	}
	for after, want := range map[Position]string{
		{0, 7}: "6 5 4",
		{0, 2}: "",            // older than what retention left
		{1, 5}: "9 8 7 6 5 4", // nothing of its partition is left
	} {
		expect.Equal(t, c.keys(t, Query{After: &after}), want, "after %v", after)
	}
	log.retain(0, 10)
	c.fed(t)
	if s := c.State(); s.Letters != 0 || !s.Oldest.IsZero() || c.Page(Query{}).Next != nil {
		t.Errorf("%s", brief(s))
	}
}

// A recreated topic may have as many records as the old one.
func TestCatalog_StartsAgainForARecreatedTopic(t *testing.T) {
	log := &fakeLog{id: [16]byte{1}}
	log.addDeadLetter(t, 0, "old", "failed", now)
	log.addDeadLetter(t, 1, "old", "failed", now)
	c := log.catalog(0).fed(t)
	log.recreate(2)
	log.addDeadLetter(t, 0, "new", "not_found", now)
	l := must.Get(c.List(t.Context(), Query{}))(t)
	expect.That(t, len(l.Letters) == 0 && l.Gone == 2, "before it is noticed: %+v", l)
	c.fed(t)
	if got := c.keys(t, Query{}); got != "new" || fmt.Sprint(c.State().Pending) != "map[failed:0 not_found:1]" || c.State().Letters != 1 {
		t.Errorf("%q, %s", got, brief(c.State()))
	}
}

func TestCatalog_ARecordThatIsNotTheOneIndexedIsGone(t *testing.T) {
	log := &fakeLog{} // without topic ids
	log.addLetter(0, "a", "failed", "closer", "order-close", now)
	c := log.catalog(0).fed(t)
	for what, at := range map[string]time.Time{"b": now, "a": now.Add(time.Millisecond)} {
		log.recreate(0)
		log.addLetter(0, what, "failed", "closer", "order-close", at)
		l := must.Get(c.List(t.Context(), Query{}))(t)
		expect.That(t, len(l.Letters) == 0 && l.Gone == 1, "%s at %v: %+v", what, at, l)
	}
}

func TestCatalog_ASearchShowsNoOtherOrderWithTheSameHash(t *testing.T) {
	log := &fakeLog{}
	log.addDeadLetter(t, 0, "a", "failed", now)
	log.addDeadLetter(t, 0, "b", "failed", now)
	c := log.catalog(0)
	c.index.hash = func(string) uint64 { return 7 }
	c.fed(t)
	collide := Query{Order: "b"}
	n := len(c.Page(collide).Positions)
	must.That(t, n == 2, "%d positions have the hash", n)
	got := c.keys(t, collide)
	expect.That(t, got == "b", "found %q", got)
}

func TestCatalog_TheOldestLeaveBeyondTheBound(t *testing.T) {
	log := &fakeLog{most: 7}
	var first Position
	for i := range 150 {
		at := log.addLetter(i%2, fmt.Sprint(i), "failed", "closer", "order-close", now.Add(time.Duration(i)*time.Second))
		if i == 0 {
			first = at
		}
	}
	log.resolve(first, wire.Redriven) // it has left
	c := log.catalog(100).fed(t)
	s, positions := c.State(), c.all(Query{All: true})
	if s.Letters != 100 || s.Left != 50 || s.Pending["failed"] != 100 || len(positions) != 100 || positions[99] != (Position{0, 25}) ||
		!s.Oldest.Equal(now.Add(50*time.Second)) {
		t.Errorf("%d pages, the last is %v: %s", len(positions), positions[99], brief(s))
	}
	expect.Equal(t, fmt.Sprint(watched(s).Pending, s.Pending), "map[failed:100 other:50] map[failed:100]", "a watch reports")
	log.retain(0, 10)
	log.retain(1, 25)
	c.fed(t)
	if s = c.State(); s.Letters != 100 || s.Left != 25 {
		t.Errorf("retention deleted what had left of one partition: %s", brief(s))
	}
}

// What a program writes into the topic can make the catalog neither large nor wrong.
func TestCatalog_PassesHostileContentThroughUnchanged(t *testing.T) {
	log := &fakeLog{}
	long := strings.Repeat("x", 1<<20)
	for _, name := range []string{long, "\xff\xfe"} {
		log.addLetter(0, "key", name, name, name, now)
	}
	log.put(deadTopic, 0, wire.RawRecord{Body: []byte{200}}, now) // not a record
	hostile := []string{strings.Repeat("k", 64<<10), "<script>alert(1)</script>", "a\x00\x1b[31m\r\n", "\u202eabc", "\xff\xfe"}
	for i := range 1000 {
		m := wire.Message{Key: []byte(hostile[i%len(hostile)]), Headers: []wire.Header{
			{Key: wire.HeaderCause, Value: fmt.Append(nil, "cause ", i)},
			{Key: wire.HeaderStage, Value: fmt.Append(nil, "stage ", i)},
			{Key: wire.HeaderSourceTopic, Value: fmt.Append(nil, "topic ", i)},
		}}
		log.put(deadTopic, 1, m.Raw(), now)
	}
	c := log.catalog(0).fed(t)
	s := c.State()
	if len(s.Pending) > maxCauses+1 || len(s.BySource) > 256 || s.Letters != 1003 {
		t.Errorf("%d causes, %d sources, %d letters", len(s.Pending), len(s.BySource), s.Letters)
	}
	total := 0
	for _, names := range []map[string]int{s.Pending, s.BySource} {
		for name, n := range names {
			total += n
			expect.That(t, len(name) <= maxName && !strings.Contains(name, "\xff"), "a name of %d bytes: %.20q", len(name), name)
		}
	}
	expect.Equal(t, total, 2*1003, "letters are counted by cause and by source")
	for i, key := range hostile {
		l := must.Get(c.List(t.Context(), Query{Order: key, Limit: maxPage}))(t)
		if n := len(l.Letters); n != 200 || l.Letters[n-1].Key != key || l.Letters[n-1].Cause != fmt.Sprint("cause ", i) {
			t.Errorf("%.20q: %d letters", key, len(l.Letters))
		}
	}
	got := c.all(Query{Cause: Other, Stage: Other, Limit: maxPage})
	expect.That(t, slices.Equal(got[len(got)-2:], []Position{{0, 1}, {0, 0}}), "counted as other: %v", got)
	l := must.Get(c.Letters(t.Context(), []Position{{0, 0}, {0, 1}, {0, 2}}))(t)
	if len(l.Letters) != 3 || l.Letters[0].Cause != long || l.Letters[1].Cause != "\xff\xfe" || l.Letters[2].Cause != "" {
		t.Errorf("%d letters", len(l.Letters))
	}
}

func TestCatalog_AListingHasABoundInBytes(t *testing.T) {
	log := &fakeLog{}
	const n = 20
	for i := range n {
		m := wire.Message{Key: fmt.Append(nil, i), Value: bytes.Repeat([]byte("v"), 1<<20)}
		log.put(deadTopic, i%2, m.Raw(), now.Add(time.Duration(i)*time.Second))
	}
	c := log.catalog(0).fed(t)
	var keys []string
	for q := (Query{}); ; {
		l := must.Get(c.List(t.Context(), q))(t)
		must.That(t, len(l.Letters) != 0 && len(l.Letters) <= maxListing>>20, "%d letters of a megabyte", len(l.Letters))
		for _, letter := range l.Letters {
			keys = append(keys, letter.Key)
		}
		if q.After = l.Next; l.Next == nil {
			break
		}
	}
	for i, key := range keys {
		must.That(t, key == fmt.Sprint(n-1-i), "page by page: %v", keys)
	}
	expect.Equal(t, len(keys), n, "letters")
	huge := wire.Message{Key: []byte("huge"), Value: make([]byte, maxListing+1)}
	log.put(deadTopic, 0, huge.Raw(), now.Add(time.Hour))
	c.fed(t)
	if l := must.Get(c.List(t.Context(), Query{}))(t); len(l.Letters) != 1 || l.Letters[0].Key != "huge" || *l.Next != l.Letters[0].At {
		t.Errorf("%d letters, next %v", len(l.Letters), l.Next)
	}
}

func TestCatalog_SaysSinceWhenKafkaDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &fakeLog{id: [16]byte{1}}
		log.addDeadLetter(t, 1, "a", "failed", now)
		c := log.catalog(0)
		if s := c.State(); s.Complete || s.Problem != "" || !s.At.IsZero() {
			t.Errorf("before Run: %s", brief(s))
		}
		var running sync.WaitGroup
		defer running.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		running.Go(func() { c.Run(ctx) })
		after := func(fail func(p int) error) CatalogState {
			log.mu.Lock()
			log.fail = fail
			log.mu.Unlock()
			time.Sleep(3 * catalogInterval)
			synctest.Wait()
			return c.State()
		}
		read := after(nil).At
		failed := time.Now()
		s := after(func(int) error { return errors.New("no broker answers") })
		since := s.FailingSince
		if s.Problem != "no broker answers" || since.Before(failed.Add(-catalogInterval)) || since.After(failed.Add(catalogInterval)) || s.At.Before(read) ||
			s.At.After(failed) || !s.Complete || s.Letters != 1 {
			t.Errorf("%s", brief(s))
		}
		log.addDeadLetter(t, 1, "b", "failed", now)
		s = after(func(p int) error {
			if p == 0 {
				return errors.New("no leader")
			}
			return nil
		})
		if s.Problem != "no leader" || s.FailingSince != since || s.Letters != 2 {
			t.Errorf("a partition without a leader: %s", brief(s))
		}
		if s = after(nil); s.Problem != "" || !s.FailingSince.IsZero() || !s.At.After(since) {
			t.Errorf("%s", brief(s))
		}
		expect.Equal(t, c.keys(t, Query{}), "b a", "keys")
	})
}

// Pages and states are read while Run adds, resolves and forgets dead letters.
func TestCatalog_IsReadWhileItRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &fakeLog{most: 3}
		c := log.catalog(200)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { c.Run(ctx) })
		for range 3 {
			running.Go(func() {
				for ctx.Err() == nil {
					for _, q := range []Query{{}, {Order: "7", All: true}, {Cause: "failed", Limit: 3}} {
						l, err := c.List(ctx, q)
						if err != nil && ctx.Err() == nil {
							t.Error(err)
						}
						q.After = l.Next
						c.Page(q)
					}
					if s := c.State(); s.Letters > 200+int(s.Total) {
						t.Error(s)
					}
					time.Sleep(300 * time.Millisecond)
				}
			})
		}
		for i := range 400 {
			at := log.addLetter(i%2, fmt.Sprint(i%10), "failed", "closer", "order-close", time.Now())
			if i%3 == 0 {
				log.resolve(at, wire.Redriven)
			}
			if i%50 == 49 {
				log.retain(0, at.Offset/2)
			}
			time.Sleep(200 * time.Millisecond)
		}
		time.Sleep(catalogInterval)
		synctest.Wait()
		if s := c.State(); s.Letters != 200 || s.Problem != "" || s.Read != s.Total {
			t.Errorf("%s", brief(s))
		}
		cancel()
		running.Wait()
	})
}

// fill adds n dead letters over 12 partitions.
func (c *Catalog) fill(n int) {
	causes := []string{"failed", "not_found", "bad_due", "no_key", "bad_value", "refused", "corrupt", "too_far_ahead"}
	batch := make([]wire.Message, 1)
	for i := range n {
		m := wire.DeadLetter(wire.Message{Topic: fmt.Sprint("delay_", i%6), Key: fmt.Append(nil, "order-", i)}, "relay", causes[i%len(causes)], "")
		m.Offset, m.Appended = int64(i/12), now.Add(time.Duration(i)*time.Millisecond)
		batch[0] = m
		c.add(i%12, batch, wire.Position{Offset: m.Offset + 1})
	}
}

func TestCatalog_ALetterTakesAtMost64Bytes(t *testing.T) {
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	const n = 100_000
	c := (&fakeLog{}).catalog(0)
	before := heap()
	c.fill(n)
	each := float64(heap()-before) / n
	runtime.KeepAlive(c)
	t.Logf("%.1f bytes for each of %d dead letters", each, n)
	expect.That(t, each <= 64, "%.1f bytes for each dead letter, want at most 64", each)
}

// BenchmarkCatalog_AMillion measures pages of a million dead letters, and counting them.
func BenchmarkCatalog_AMillion(b *testing.B) {
	const n = 1_000_000
	c := (&fakeLog{}).catalog(0)
	c.fill(n)
	for _, bench := range []struct {
		name string
		q    Query
	}{
		{"newest", Query{}},
		{"page 10,000", Query{After: &Position{5, n / 24}}},
		{"cause", Query{Cause: "no_key"}},
		{"order", Query{Order: "order-7"}},
		{"nothing", Query{Cause: "failed", Stage: "relay", Source: "delay_1", Since: now, All: true}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			for b.Loop() {
				c.Page(bench.q)
			}
		})
	}
	b.Run("count", func(b *testing.B) {
		for b.Loop() {
			c.changed = true
			c.publish(func(*CatalogState) {})
		}
	})
}
