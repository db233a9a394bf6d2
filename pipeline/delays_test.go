package pipeline

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/compensator"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/wire"
)

func TestDelays_AreRecordedWhenTheyDiffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &pauseTopic{}
		read := func() (all []string) {
			t.Helper()
			s, err := ops.NewControl(log, "control").Read(t.Context(), time.Now())
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range s.Delays {
				all = append(all, d.Process+" "+d.Of("").String())
			}
			return all
		}
		process := func(name string) func(time.Duration) {
			r := delayRecorder{control: ops.NewControl(log, "control"), history: compensator.History{Appender: log, Topic: "control"}}
			return func(delay time.Duration) {
				t.Helper()
				if err := r.record(t.Context(), wire.NewDelays(orderclose.Delays{Default: delay}, name), time.Now()); err != nil && !log.fails {
					t.Fatal(err)
				}
			}
		}
		want := func(what string, all ...string) {
			t.Helper()
			if diff := cmp.Diff(all, read()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", what, diff)
			}
		}
		a, b := process("a"), process("b")
		a(time.Hour)
		a(time.Hour)
		b(time.Hour)
		want("two processes with the same delays", "a 1h0m0s")
		a(time.Minute)
		b(time.Minute)
		want("both read another file", "a 1m0s", "a 1h0m0s")
		b(time.Second)
		for range 2 {
			time.Sleep(delaysChecked)
			a(time.Minute)
			b(time.Second)
		}
		want("they have different files", "b 1s", "a 1m0s", "a 1h0m0s")
		time.Sleep(delaysChecked)
		a(time.Minute)
		b(time.Second)
		want("before the topic deletes the record", "b 1s", "b 1s", "a 1m0s", "a 1h0m0s")
		process("c")(2 * time.Second)
		want("a start with another file", "c 2s", "b 1s", "b 1s", "a 1m0s", "a 1h0m0s")
		log.fails = true
		b(3 * time.Second)
		log.fails = false
		b(3 * time.Second)
		want("a second attempt", "b 3s", "c 2s", "b 1s", "b 1s", "a 1m0s", "a 1h0m0s")
	})
}
