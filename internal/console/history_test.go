package console

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose/internal/backlog"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/testkit/expect"
)

// look is a status of one delay topic and the close topic.
func look(at time.Time, delayWaits, delayEnd, closeWaits, closeEnd int64, overdue float64) backlog.Status {
	topic := func(name string, waits, end int64, overdue float64) backlog.TopicStatus {
		return backlog.TopicStatus{Topic: name, Waiting: waits, Partitions: []backlog.PartitionStatus{{Waiting: waits, End: end, Overdue: overdue}}}
	}
	return backlog.Status{At: at, Topics: []backlog.TopicStatus{topic("delay_1m", delayWaits, delayEnd, overdue), topic("order-close", closeWaits, closeEnd, 0)}}
}

var named = config.Topics{Close: "order-close", Events: "order-events"}

// In each of three minutes 600 orders come, of which each takes two hops, and 300 are closed.
func TestHistory_HasRatesFromWhatWaitsAndFromEnds(t *testing.T) {
	var h history
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for i := range int64(4) {
		h.add(look(at.Add(time.Duration(i)*time.Minute), 1000+300*i, 5000+1800*i, 7, 100+300*i, float64(i)), named)
	}
	all := h.trends()
	if rates := all[0]; len(all) != 3 || rates.Lines[0].Last != 600 || rates.Lines[1].Last != 300 || rates.Most != 600 ||
		rates.Lines[1].Points != "0,50 333,50 667,50 1000,50 " {
		t.Errorf("%+v", all)
	}
	expect.That(t, all[1].Lines[0].Last == 1907 && all[2].Lines[0].Points == "0,100 333,67 667,33 1000,0 ", "%+v", all)
	h.kept = h.kept[:1]
	expect.That(t, h.trends() == nil, "one reading has no rate")
	h.kept = []reading{{at: at}, {at: at.Add(8 * time.Minute), created: 1}}
	slow := h.trends()[0]
	expect.That(t, slow.Most == 1 && slow.Lines[0].Last == 0.125 && slow.Lines[0].Points == "0,88 1000,88 ", "%+v", slow)
}

// While a page is open a status comes each ten seconds: the newest is shown at once, and one a minute is kept.
func TestHistory_IsBounded(t *testing.T) {
	var h history
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for i := range 6 * 60 * 7 { // seven hours
		h.add(look(at.Add(time.Duration(i)*10*time.Second), 1, 1, 1, 1, 0), named)
		h.add(look(at.Add(time.Duration(i)*10*time.Second+time.Second), 1, 1, 1, 1, 0), named) // after an action
	}
	kept := slices.Clone(h.kept)
	if n := len(kept); n != maxSamples || kept[n-2].at.Sub(kept[n-3].at) != sampleEvery || at.Add(7*time.Hour).Sub(kept[n-1].at) > 11*time.Second {
		t.Errorf("%d readings; the newest: %+v", n, kept[n-3:])
	}
	unread := look(at.Add(8*time.Hour), 1, 1, 1, 1, 0)
	unread.Topics[0].Partitions[0] = backlog.PartitionStatus{Problem: "no leader"}
	h.add(unread, named)
	unread.Topics[0] = backlog.TopicStatus{Topic: "delay_1m", Problem: "no such topic"}
	h.add(unread, named)
	expect.Equal(t, h.kept[maxSamples-1].at, kept[maxSamples-1].at, "what could not be read counts as 0")
}

func TestNow_ShowsTheLastHours(t *testing.T) {
	r := newRig(t)
	expect.That(t, !strings.Contains(r.open("/"), `id="history"`), "a chart of one look")
	r.c.trend.mu.Lock()
	r.c.trend.kept = append([]reading{{at: time.Now().Add(-time.Minute), created: -1200}}, r.c.trend.kept...)
	r.c.trend.mu.Unlock()
	page := r.open("/")
	contains(t, page, `id="history"`, "New/min: 1,", "Handled/min: 0<", "Overdue by: 0<", `<polyline class="line l1"`)
}
