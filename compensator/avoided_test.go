package compensator

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose"
)

func TestAvoided_PicksTheNextSmallerBucketForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		buckets := orderclose.Buckets{
			{Topic: "5m", Length: 5 * time.Minute}, {Topic: "30m", Length: 30 * time.Minute, Draining: true},
			{Topic: "1h", Length: time.Hour}, {Topic: "12h", Length: 12 * time.Hour},
		}
		var a avoided
		want := func(topic string) {
			t.Helper()
			if got := a.pick(buckets, 2*time.Hour).Topic; got != topic {
				t.Errorf("%s, want %s", got, topic)
			}
		}
		want("1h")
		a.add("12h")
		want("1h")
		a.add("1h")
		want("5m")
		time.Sleep(avoidDuration / 2)
		a.add("5m")
		want("1h") // no bucket is left: the suitable one
		time.Sleep(avoidDuration/2 + 1)
		want("1h")
		time.Sleep(avoidDuration)
		a.add("1h")
		want("5m")
	})
}
