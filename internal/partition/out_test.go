package partition

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"orderclose"
)

var errAway = errors.New("the broker is away")

func TestOut_TriesUntilItIsAcked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		log := &fakeLog{append: func(string, []orderclose.Message) error {
			if tries++; tries < 5 {
				return errAway
			}
			return nil
		}}
		var acked []string
		ok := newOut(t, t.Context(), log).Append("target", messages("a", "b"), func(m orderclose.Message, _ time.Time) {
			acked = append(acked, string(m.Key))
		})
		if diff := cmp.Diff([]string{"a", "b"}, acked); !ok || diff != "" {
			t.Errorf("ok %v, acked (-want +got):\n%s", ok, diff)
		}
	})
}

func TestOut_AcksNothingThatWasNotAcked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		log := &fakeLog{append: func(string, []orderclose.Message) error { return errAway }}
		ok := newOut(t, ctx, log).Append("target", messages("a"), func(orderclose.Message, time.Time) { t.Error("acked") })
		if ok {
			t.Error("reported success after the claim has ended")
		}
	})
}

func TestOut_OnlyWhatIsRefusedBecomesADeadLetter(t *testing.T) {
	log := &fakeLog{append: func(topic string, messages []orderclose.Message) error {
		if topic == "target" && slices.ContainsFunc(messages, func(m orderclose.Message) bool { return string(m.Key) == "huge" }) {
			return orderclose.ErrTooLarge
		}
		return nil
	}}
	acked := 0
	ok := newOut(t, t.Context(), log).Append("target", messages("a", "b", "huge", "c"), func(orderclose.Message, time.Time) { acked++ })
	if !ok || acked != 4 {
		t.Errorf("ok %v, %d acked; want true and 4", ok, acked)
	}
	want := map[string][]string{"target": {"a", "b", "c"}, "dead": {"huge"}}
	if diff := cmp.Diff(want, log.appended); diff != "" {
		t.Errorf("appended (-want +got):\n%s", diff)
	}
}

func TestLinger_OutlivesItsParentByJustSoMuch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parent, end := context.WithCancel(t.Context())
		ctx, cancel := Linger(parent, 2*time.Second)
		defer cancel()
		end()
		time.Sleep(1999 * time.Millisecond)
		if ctx.Err() != nil {
			t.Error("ended too soon")
		}
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		if ctx.Err() == nil {
			t.Error("did not end")
		}
	})
}
