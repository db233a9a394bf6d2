package console

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/ops"
)

// look is a status of one delay topic and the close topic.
func look(at time.Time, delayWaits, delayEnd, closeWaits, closeEnd int64, overdue float64) ops.Status {
	topic := func(name string, waits, end int64, overdue float64) ops.TopicStatus {
		return ops.TopicStatus{Topic: name, Waiting: waits, Partitions: []ops.PartitionStatus{{Waiting: waits, End: end, Overdue: overdue}}}
	}
	return ops.Status{At: at, Topics: []ops.TopicStatus{topic("delay_1m", delayWaits, delayEnd, overdue), topic("order-close", closeWaits, closeEnd, 0), topic("order-close-replay", 0, 5, 0)}}
}

var topics = config.Topics{Close: "order-close", Replay: "order-close-replay"}

// In each of three minutes 600 orders come, of which each takes two hops, and 300 are closed.
func TestHistory_HasRatesFromWhatWaitsAndFromEnds(t *testing.T) {
	var h history
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for i := range int64(4) {
		h.add(look(at.Add(time.Duration(i)*time.Minute), 1000+300*i, 5000+1800*i, 7, 100+300*i, float64(i)), topics)
	}
	samples := h.samples()
	if last := samples[3]; len(samples) != 4 || last.Waiting != 1907 || last.Overdue != 3 || last.Created-samples[0].Created != 3*600 || last.Handled-samples[0].Handled != 3*300 {
		t.Fatalf("%+v", samples)
	}
	all := trends(samples)
	if rates := all[0]; len(all) != 3 || rates.Lines[0].Last != 10 || rates.Lines[1].Last != 5 || rates.Most != 10 || rates.Lines[1].Points != "0,50 333,50 667,50 1000,50 " {
		t.Errorf("%+v", all)
	}
	if all[1].Lines[0].Last != 1907 || all[2].Lines[0].Points != "0,100 333,67 667,33 1000,0 " {
		t.Errorf("%+v", all)
	}
	if trends(samples[:1]) != nil {
		t.Error("one sample has no rate")
	}
}

// While a page is open a status comes each ten seconds: the newest is shown at once, and one a minute is kept.
func TestHistory_IsBounded(t *testing.T) {
	var h history
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for i := range 6 * 60 * 7 { // seven hours
		h.add(look(at.Add(time.Duration(i)*10*time.Second), 1, 1, 1, 1, 0), topics)
		h.add(look(at.Add(time.Duration(i)*10*time.Second+time.Second), 1, 1, 1, 1, 0), topics) // after an action
	}
	samples := h.samples()
	if n := len(samples); n != maxSamples || samples[n-2].At.Sub(samples[n-3].At) != sampleEvery || at.Add(7*time.Hour).Sub(samples[n-1].At) > 11*time.Second {
		t.Errorf("%d samples; the newest: %+v", n, samples[n-3:])
	}
	unread := look(at.Add(8*time.Hour), 1, 1, 1, 1, 0)
	unread.Topics[0].Partitions[0] = ops.PartitionStatus{Problem: "no leader"}
	h.add(unread, topics)
	unread.Topics[0] = ops.TopicStatus{Topic: "delay_1m", Problem: "no such topic"}
	h.add(unread, topics)
	if h.samples()[maxSamples-1] != samples[maxSamples-1] {
		t.Error("what could not be read counts as 0")
	}
}

func TestNow_ShowsTheLastHours(t *testing.T) {
	r := newRig(t)
	if page := r.open("/"); strings.Contains(page, `id="history"`) {
		t.Errorf("a chart of one look:\n%s", page)
	}
	r.c.trend.mu.Lock()
	r.c.trend.kept = append([]sample{{At: time.Now().Add(-time.Minute), Created: -1200}}, r.c.trend.kept...)
	r.c.trend.mu.Unlock()
	page := r.open("/")
	contains(t, page, `id="history"`, "New/s: 20", "Handled/s: 0<", "Overdue by: 0<", `<polyline class="line l1"`)
	var all []sample
	if code := r.json(http.MethodGet, "/api/v1/history", "", &all); code != http.StatusOK || len(all) != 2 || fmt.Sprint(all[0].Created) != "-1200" {
		t.Errorf("%d %+v", code, all)
	}
}
