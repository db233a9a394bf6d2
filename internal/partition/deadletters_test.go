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
			out := newOut(ctx, &fakeLog{append: func(string, []wire.RawRecord) error {
				if away.Load() {
					return errDown
				}
				return nil
			}})
			added, bytes := 0, 0
			for !out.Full() {
				m := wire.Message{Offset: int64(added), Key: []byte("k"), Value: make([]byte, value)}
				out.DeadLetter(m, "unreadable", "garbage")
				added++
				bytes += out.waiting[added-1].Size()
			}
			if added > maxPending || bytes > maxPendingBytes+wire.MaxDeadValue+1000 || (added == maxPending) != (value == 10) {
				t.Errorf("%s: full with %d dead letters of %d bytes", name, added, bytes)
			}
			out.StartDeadLetters()
			time.Sleep(time.Minute)
			away.Store(false)
			acked := 0
			for acked < added {
				acked += len(<-out.DeadLettersAcked)
				out.HandleDeadLettersAcked()
				out.StartDeadLetters()
			}
			if out.Full() || out.bytes != 0 || len(out.waiting) != 0 {
				t.Errorf("%s: %d bytes of %d dead letters remain after all were appended", name, out.bytes, len(out.waiting))
			}
			cancel()
			out.WaitDeadLetters(func([]wire.RawRecord) {})
		})
	}
}
