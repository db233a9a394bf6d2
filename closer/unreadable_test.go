package closer

import (
	"bytes"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/wire"
)

// Every unreadable record becomes a dead letter.
func TestCloser_UnreadableRecordsWriteFewLogLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const garbage, partitions = 5000, 4
		log := &orderLog{}
		for i := range garbage {
			log.Put(testkit.TopicPartition{Topic: toClose.Topic, Partition: i % partitions}, wire.Message{Key: []byte("k"), Value: []byte("garbage")})
		}
		var lines bytes.Buffer // text handlers write one line at a time
		c, err := New(Options{
			Log: log, Store: &fakeStore{}, Group: "g", CloseTopic: toClose.Topic, DeadLetterTopic: "dead", ControlTopic: "control",
			Buckets: orderclose.Buckets{{Topic: "delay_1m", Length: time.Minute}}, Logger: slog.New(slog.NewTextHandler(&lines, nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		stop := testkit.Start(t, c.Run)
		time.Sleep(time.Minute)
		stop()
		if n := len(log.Keys("dead")); n != garbage {
			t.Errorf("%d of %d are dead letters", n, garbage)
		}
		if n := bytes.Count(lines.Bytes(), []byte("dead letter")); n != retry.LogBurst+1 || !bytes.Contains(lines.Bytes(), []byte("left_out=4980")) {
			t.Errorf("%d lines for %d records:\n%s", n, garbage, lines.String())
		}
	})
}

// The dead letters in memory are bounded, other partitions go on, and in the end every
// record becomes a dead letter.
func TestCloser_StopsReadingWhileDeadLettersCannotBeAppended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const garbage, most = 10_000, 1000 + 3000 // a fetch of this log brings 3,000
		log, store := &fetchedLog{}, &fakeStore{}
		var fixed atomic.Bool
		log.Fail = func(topic string) error {
			if topic == "dead" && !fixed.Load() {
				return errors.New("unknown topic or partition")
			}
			return nil
		}
		for range garbage {
			log.Put(toClose, wire.Message{Key: []byte("k"), Value: []byte("garbage")})
		}
		o := orderclose.Order{ID: "good", CreatedAt: time.Now(), Due: time.Now()}
		log.put(t, testkit.TopicPartition{Topic: toClose.Topic, Partition: 1}, wire.Record{Order: o, Release: o.Due})
		defer runCloser(t, log, store, 100)()
		time.Sleep(time.Hour)
		if n := log.upTo.Load(); n > most || len(store.ids()) != 1 {
			t.Errorf("%d records of garbage were read, want %d at most; closed %v", n, most, store.ids())
		}
		fixed.Store(true)
		time.Sleep(time.Minute)
		if n := len(log.Keys("dead")); n != garbage || log.doneBelow() != garbage {
			t.Errorf("%d of %d are dead letters, done below %d", n, garbage, log.doneBelow())
		}
	})
}
