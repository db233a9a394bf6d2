package partition

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose/internal/wire"
)

// The first bound that is reached counts, until the dead letters are appended.
func TestDeadLetters_IsFullByRecordsAndByBytes(t *testing.T) {
	for name, value := range map[string]int{"small": 10, "large": 1 << 20} {
		synctest.Test(t, func(t *testing.T) {
			away := atomic.Bool{}
			away.Store(true)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			l := newTestLoop(ctx, &fakeLog{append: func(string, []wire.RawRecord) error {
				if away.Load() {
					return errDown
				}
				return nil
			}})
			added, bytes := 0, 0
			for !l.dead.full() {
				m := wire.Message{Offset: int64(added), Key: []byte("k"), Value: make([]byte, value)}
				l.committer.Add(m.Offset)
				l.DeadLetter(m, "unreadable", "garbage")
				added++
				bytes += l.dead.waiting[added-1].Size()
			}
			if added > maxDeadLetters || bytes > maxDeadLetterBytes+wire.MaxDeadValue+1000 || (added == maxDeadLetters) != (value == 10) {
				t.Errorf("%s: full with %d dead letters of %d bytes", name, added, bytes)
			}
			begin := time.Now()
			l.play(func() bool { return time.Since(begin) > time.Minute })
			if low := l.committer.Low(); low != 0 || !l.dead.full() {
				t.Errorf("%s: done below %d before the dead letters were appended", name, low)
			}
			away.Store(false)
			l.play(func() bool { return l.committer.Low() == int64(added) })
			if l.dead.records != 0 || l.dead.bytes != 0 || len(l.dead.waiting) != 0 {
				t.Errorf("%s: %+v remains after all were appended", name, l.dead)
			}
		})
	}
}
