package kafka

import (
	"context"
	"errors"
	"testing"

	"github.com/orderclose/orderclose/internal/wire"
)

// fetcher returns its answers one after the other, and then always the last.
type fetcher struct {
	answers []wire.Fetched
	asked   []wire.Position
}

func (f *fetcher) Read(_ context.Context, at wire.Position) (wire.Fetched, error) {
	f.asked = append(f.asked, at)
	a := f.answers[0]
	if len(f.answers) > 1 {
		f.answers = f.answers[1:]
	}
	return a, nil
}

func records(offsets ...int64) wire.Fetched {
	f := wire.Fetched{}
	for _, o := range offsets {
		f.Records, f.Next = append(f.Records, wire.RawRecord{Offset: o}), o+1
	}
	return f
}

func TestScan_EndsWithTheSpan(t *testing.T) {
	first := records(5, 6)
	first.Log.Topic = [16]byte{1}
	log := &fetcher{answers: []wire.Fetched{first, {Next: 7}, {Next: 7}, records(7, 8, 9), {}}}
	n := 0
	read, err := Scan(t.Context(), log, "t", Span{First: 5, End: 9}, func(f wire.Fetched) error {
		n += len(f.Records)
		return nil
	})
	if read != 9 || n != 4 || err != nil {
		t.Errorf("read to %d, %d records, %v; want 9, 4", read, n, err)
	}
	if was := log.asked; was[0].Log != (wire.LogID{}) || was[1].Log != first.Log || was[1].Offset != 7 {
		t.Errorf("read at %+v: want each read to use the log of the previous read", was)
	}
}

// TestScan_StopsAtRecreatedOrShorterLog that changes while it is read.
func TestScan_StopsAtRecreatedOrShorterLog(t *testing.T) {
	lost := &wire.Range{First: 0, Last: 6, Err: errors.New("the log ends at 3")}
	for want, last := range map[error]wire.Fetched{
		ErrRecreated: {Next: 0, Lost: lost, Replaced: true},
		ErrShorter:   {Next: 7},
	} {
		log := &fetcher{answers: []wire.Fetched{records(5, 6), last}}
		read, err := Scan(t.Context(), log, "t", Span{First: 5, End: 9}, func(wire.Fetched) error { return nil })
		if read != 7 || !errors.Is(err, want) || len(log.asked) > 1+maxIdleFetches {
			t.Errorf("read to %d after %d fetches: %v; want 7, %v", read, len(log.asked), err, want)
		}
	}
}
