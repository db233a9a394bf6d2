package console

import (
	"testing"
	"time"

	"github.com/orderclose/orderclose/internal/ops"
)

func TestFirstSeen_SaysSinceWhenAProblemIsThere(t *testing.T) {
	at := func(minute int) time.Time { return time.Date(2026, 11, 20, 12, minute, 0, 0, time.UTC) }
	var f firstSeen
	for _, look := range []struct {
		now         int
		there       bool
		known, want int // minutes; 0: it is not known
	}{{1, true, 0, 1}, {2, true, 0, 1}, {3, false, 0, 0}, {4, true, 0, 4}, {5, true, 3, 3}, {6, true, 0, 4}} {
		var all []ops.Problem
		if look.there {
			all = []ops.Problem{{Kind: ops.ConfigBroken}}
		}
		if look.known > 0 {
			all[0].Since = at(look.known)
		}
		f.mark(all, at(look.now))
		if look.there && !all[0].Since.Equal(at(look.want)) {
			t.Errorf("minute %d: since %v, want minute %d", look.now, all[0].Since, look.want)
		}
	}
}
