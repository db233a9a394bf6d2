package delayrelay

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/wire"
)

// leaderless is a log whose close topic has two partitions and whose delay topics have one, as while
// partitions are added. The partition 1 has no leader. It gets the records with a key that begins with b.
type leaderless struct{ *testkit.Log }

func (l leaderless) GroupForClaim(_ context.Context, _ wire.Claim, topic string, records []wire.RawRecord) (map[int][]wire.RawRecord, error) {
	groups := map[int][]wire.RawRecord{}
	for _, r := range records {
		p := 0
		if topic == "order-close" && r.Key()[0] == 'b' {
			p = 1
		}
		groups[p] = append(groups[p], r)
	}
	return groups, nil
}

func (l leaderless) Idempotent(repeated func(int)) wire.AppendFunc {
	do := l.Log.Idempotent(repeated)
	return func(ctx context.Context, topic string, p int, records []wire.RawRecord) (time.Time, error) {
		if p == 1 {
			for retry.Sleep(ctx, 100*time.Millisecond) {
			}
			return time.Time{}, errors.New("Leader Not Available")
		}
		return do(ctx, topic, p, records)
	}
}

func TestRelay_AClosePartitionWithoutALeaderDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &testkit.Log{}
		log.Put(bucket10s, record("b", time.Second))
		defer runRelay(t, log, func(o *Options) { o.Log = leaderless{log} })()
		for i := range 300 { // five a second
			log.Put(bucket10s, record(fmt.Sprint("a", i), 8*time.Second))
			if i%50 == 0 {
				log.Put(bucket10s, record(fmt.Sprint("b", i), 8*time.Second))
			}
			time.Sleep(200 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		var worst time.Duration
		n := 0
		for _, m := range log.Appended()["order-close"] {
			due, _ := m.Due()
			worst, n = max(worst, m.Appended.Sub(due)), n+1
		}
		if n != 300 || worst > 200*time.Millisecond {
			t.Errorf("%d records of the healthy partition were appended, the latest %v late; want 300, at most 200 ms late", n, worst)
		}
	})
}
