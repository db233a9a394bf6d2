package deadletters

import (
	"slices"
	"testing"

	"github.com/orderclose/orderclose/internal/wire"
)

func TestCatalog_KnowsWhereTheRecordsOfAnOrderAre(t *testing.T) {
	log := &fakeLog{}
	first := log.addDeadLetter(t, 0, "a", "failed", now)
	log.addDeadLetter(t, 0, "b", "failed", now)
	log.addDeadLetter(t, 1, "a", "failed", now)
	log.resolve(first, wire.Redriven)
	log.addDeadLetter(t, 0, "a", "failed", now)
	c := log.catalog(0)
	if _, _, ok := c.OfOrder(0, "a"); ok {
		t.Error("it knows all before it has read the topic")
	}
	c.fed(t)
	log.addDeadLetter(t, 0, "a", "failed", now) // not read yet
	if offsets, next, ok := c.OfOrder(0, "a"); !ok || next != 4 || !slices.Equal(offsets, []int64{0, 2, 3}) {
		t.Errorf("%v, %d, %v; want the dead letters 0 and 3, the resolution 2, and 4 as the next", offsets, next, ok)
	}
	if offsets, next, ok := c.OfOrder(0, "other"); !ok || next != 4 || len(offsets) > 0 {
		t.Errorf("%v, %d, %v; want none", offsets, next, ok)
	}
	small := log.catalog(2).fed(t)
	if _, _, ok := small.OfOrder(0, "a"); ok {
		t.Error("it knows all although some have left")
	}
}

func TestCatalog_ReadsALetterThatItHasNotIndexedYet(t *testing.T) {
	log := &fakeLog{}
	known := log.addDeadLetter(t, 0, "a", "failed", now)
	c := log.catalog(0).fed(t)
	at := log.addDeadLetter(t, 0, "b", "failed", now)
	log.resolve(known, wire.Discarded)
	log.addDeadLetter(t, 1, "c", "failed", now)
	for at, key := range map[Position]string{known: "a", at: "b", {1, 0}: "c", {0, 2}: "", {0, 3}: "", {0, 1000}: "", {7, 0}: ""} {
		l, err := c.Letter(t.Context(), at)
		if err != nil || (l != nil) != (key != "") || l != nil && (l.Key != key || l.At != at || l.Resolution != "") {
			t.Errorf("%v: %+v, %v; want %q", at, l, err, key)
		}
	}
}
