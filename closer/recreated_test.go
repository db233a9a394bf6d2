package closer

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/wire"
)

// The dead letter is acked when its offset belongs to another order.
func TestCloser_ADeadLetterOfTheOldLogMarksNoOffset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, began := &orderLog{}, time.Now()
		log.Fail = func(topic string) error {
			if topic == "dead" && time.Since(began) < time.Minute {
				return errors.New("away")
			}
			return nil
		}
		store := &fakeStore{locked: map[string]bool{"new": true}}
		log.Put(toClose, wire.Message{Value: []byte("no key")})
		log.add(t, "a")
		log.add(t, "b")
		defer runCloser(t, log, store, 10)()
		time.Sleep(10 * time.Second)
		o := orderclose.Order{ID: "new", CreatedAt: time.Now(), Due: time.Now()}
		m, err := wire.Record{Order: o, Release: o.Due}.Encode()
		if err != nil {
			t.Fatal(err)
		}
		log.Recreate(toClose, m)
		time.Sleep(80 * time.Second)
		synctest.Wait()
		if done, dead := log.doneBelow(), len(log.Keys("dead")); done != 0 || dead != 1 {
			t.Errorf("done below %d with %d dead letters, while the order at offset 0 is open", done, dead)
		}
	})
}

// Neither its offset nor the runs above it count.
func TestCloser_IgnoresACommitOfAnotherLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, store := &orderLog{}, &fakeStore{}
		for _, id := range []string{"a", "b", "c", "d"} {
			log.add(t, id)
		}
		acked, _ := wire.EncodeDone(wire.LogID{Topic: [16]byte{99}}, 1, []wire.Run{{First: 2, End: 3}})
		log.Commit(toClose, 1, acked)
		defer runCloser(t, log, store, 10)()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if ids := store.ids(); len(ids) != 4 || log.doneBelow() != 4 || len(log.Keys("control")) != 1 {
			t.Errorf("closed %v, done below %d, %d notices of losses; want 4, 4, 1", ids, log.doneBelow(), len(log.Keys("control")))
		}
	})
}
