package closer

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"orderclose"
	"orderclose/internal/partition/partitiontest"
)

func TestCloser_OneBadOrderCostsNobodyElseTheCloseAndIsTriedAgainInAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, store := &orderLog{}, &fakeStore{bad: map[string]bool{"2": true}}
		for i := range 5 {
			log.add(t, fmt.Sprint(i))
		}
		begin := time.Now()
		defer runCloser(t, log, store, 10)()
		time.Sleep(250 * time.Millisecond) // until it has told how far it is
		synctest.Wait()
		if diff := cmp.Diff([]string{"0", "1", "3", "4"}, store.ids()); diff != "" || log.doneBelow() != 5 {
			t.Errorf("done below %d, closed (-want +got):\n%s", log.doneBelow(), diff)
		}
		again := log.Appended()["delay_1m"]
		if len(again) != 1 || len(log.Appended()) != 1 {
			t.Fatalf("appended %v, want order 2 to delay_1m", log.Appended())
		}
		r, err := again[0].Decode()
		wait := r.Release.Sub(begin)
		if err != nil || r.Order.ID != "2" || r.Attempt != 1 || r.Cause != "failed" || wait < time.Minute || wait > 66*time.Second+time.Millisecond ||
			r.Origin != (orderclose.Origin{Topic: "order-close", Offset: 2}) || !r.Order.Due.Equal(begin) {
			t.Errorf("%+v after %v, %v", r, wait, err)
		}
	})
}

// TestCloser_AnOrderThatHadItsTriesIsADeadLetterWithAllThereIsToKnow: where it lay
// when it first failed, and where it lies now.
func TestCloser_AnOrderThatHadItsTriesIsADeadLetterWithAllThereIsToKnow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, store := &orderLog{}, &fakeStore{bad: map[string]bool{"bad": true}}
		log.put(t, partitiontest.Place{Topic: "order-close-replay", Partition: 4}, orderclose.Record{
			Order: orderclose.Order{ID: "bad", CreatedAt: time.Now(), Due: time.Now()}, Release: time.Now(),
			Attempt: 3, Cause: "not_found", Origin: orderclose.Origin{Topic: "order-close", Partition: 7, Offset: 1234},
		})
		defer runCloser(t, log, store, 10)()
		time.Sleep(250 * time.Millisecond)
		synctest.Wait()
		dead := log.Appended()["dead"]
		if len(dead) != 1 || len(log.Appended()) != 1 {
			t.Fatalf("appended %v, want a dead letter", log.Appended())
		}
		for header, want := range map[string]string{
			"cause": "failed", "detail": "no stock row", "stage": "closer", "attempt": "3",
			"origin-topic": "order-close", "origin-partition": "7", "origin-offset": "1234",
			"source-topic": "order-close-replay", "source-partition": "4", "source-offset": "0",
		} {
			if got, _ := dead[0].Header(header); got != want {
				t.Errorf("%s is %q, want %q", header, got, want)
			}
		}
	})
}

// TestCloser_ARetryOfAReplayStaysOnItsLane, also of one that somebody put there
// without the header.
func TestCloser_ARetryOfAReplayStaysOnItsLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, store := &orderLog{}, &fakeStore{bad: map[string]bool{"bad": true}}
		log.put(t, partitiontest.Place{Topic: "order-close-replay", Partition: 0}, orderclose.Record{Order: orderclose.Order{ID: "bad", CreatedAt: time.Now(), Due: time.Now()}, Release: time.Now()})
		defer runCloser(t, log, store, 10)()
		time.Sleep(250 * time.Millisecond)
		synctest.Wait()
		again := log.Appended()["delay_1m"]
		if len(again) != 1 {
			t.Fatalf("appended %v", log.Appended())
		}
		if lane, _ := again[0].Header("lane"); lane != "replay" {
			t.Errorf("lane is %q", lane)
		}
	})
}
