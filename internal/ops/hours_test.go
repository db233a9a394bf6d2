package ops

import (
	"testing"
	"time"

	"github.com/orderclose/orderclose/internal/overdue"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/wire"
)

func TestHourOf_ARecordSaysWhatARowSays(t *testing.T) {
	s := wire.Sweep{StartedAt: noon.Add(3 * time.Second), TookMillis: 2000, PeriodMillis: 3_600_000, Missed: 1, AfterPause: 2, AfterFailure: 3, Failed: 4}
	want := overdue.Hour{Begin: noon, State: overdue.Finished, Ended: noon.Add(5 * time.Second), Took: 2 * time.Second,
		Counts: overdue.Counts{Missed: 1, AfterPause: 2, AfterFailure: 3, NotClosed: 4}}
	expect.Same(t, hourOf(s), want, "a finished one")
	s.Error, want.State = "no pass has ended", overdue.Unfinished
	expect.Same(t, hourOf(s), want, "one that has not finished")
}
