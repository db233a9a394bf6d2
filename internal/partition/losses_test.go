package partition

import (
	"testing"

	"github.com/orderclose/orderclose/internal/wire"
)

// Most records of a topic that is recreated were settled long ago.
func TestLoop_ALossCountsTheRecordsThatWaited(t *testing.T) {
	for what, c := range map[string]struct {
		lost wire.Fetched
		end  int64 // of the log when it was fetched last
		want int64
	}{
		"the log was recreated":                  {wire.Fetched{Lost: &wire.Range{First: 0, Last: 9}, Replaced: true}, 10, 4},
		"and it had records that nobody read":    {wire.Fetched{Lost: &wire.Range{First: 0, Last: 9}, Replaced: true}, 20, 14},
		"the log lost its end":                   {wire.Fetched{Lost: &wire.Range{First: 7, Last: 9}, Replaced: true}, 10, 2},
		"retention deleted unread records":       {wire.Fetched{Lost: &wire.Range{First: 10, Last: 14}}, 20, 5},
		"it is unknown whether records are lost": {wire.Fetched{Lost: &wire.Range{First: 0, Last: -1}, Replaced: true}, 0, 1},
		"retention deleted settled records":      {wire.Fetched{Lost: &wire.Range{First: 6, Last: 7}}, 20, 0},
	} {
		l := newTestLoop(t.Context(), &fakeLog{})
		for offset := range int64(10) {
			l.committer.Add(offset)
		}
		for _, offset := range []int64{0, 1, 2, 3, 6, 7} {
			l.committer.Done(0, offset)
		}
		l.end = c.end
		if got := l.waited(&c.lost); got != c.want {
			t.Errorf("%s: %d waited, want %d", what, got, c.want)
		}
	}
}
