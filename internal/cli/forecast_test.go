package cli

import (
	"io"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// sampleForecast has the buckets 1m and 12h, and records in some of the steps.
func sampleForecast() ops.Forecast {
	edges := ops.ForecastEdges(10 * time.Hour)
	f := ops.Forecast{At: at, Buckets: []ops.BucketForecast{{Topic: "delay_1m", Length: "1m", Overdue: 3}, {Topic: "delay_12h", Length: "12h", Later: 40}}}
	for i := 1; i < len(edges); i++ {
		step := ops.ForecastStep{From: at.Add(edges[i-1]), To: at.Add(edges[i])}
		if i == 1 {
			step.Records = 250
		}
		f.Buckets[0].Steps = append(f.Buckets[0].Steps, step)
		step.Records = int64(i * i * 10)
		f.Buckets[1].Steps = append(f.Buckets[1].Steps, step)
	}
	return f
}

// sparseForecast has only two records, and a bucket without a topic.
func sparseForecast() ops.Forecast {
	f := sampleForecast()
	for i := range f.Buckets {
		b := &f.Buckets[i]
		b.Overdue, b.Later = 0, 0
		for j := range b.Steps {
			b.Steps[j].Records = 0
		}
	}
	f.Buckets[1].Steps[0].Records, f.Buckets[1].Steps[12].Records = 1, 1
	f.Buckets[0].Problem = "topic delay_1m does not exist: run orderclose topics apply"
	return f
}

func TestForecast_Tables(t *testing.T) {
	golden(t, "forecast_sparse", func(w io.Writer) { printForecast(w, sparseForecast(), canvas{width: 80}) })
	golden(t, "forecast_plain", func(w io.Writer) { printForecast(w, sampleForecast(), canvas{width: 80}) })
	golden(t, "forecast_terminal", func(w io.Writer) { printForecast(w, sampleForecast(), canvas{width: 50, blocks: true}) })
}

func TestForecast_FitsIntoTheWidth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		on := canvas{width: rapid.IntRange(45, 300).Draw(t, "width"), blocks: rapid.Bool().Draw(t, "blocks")}
		var out strings.Builder
		printForecast(&out, sampleForecast(), on)
		_, chart, _ := strings.Cut(out.String(), "\n")
		for line := range strings.Lines(chart) {
			n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n"))
			must.That(t, n <= on.width, "%d columns of %d: %q", n, on.width, line)
		}
	})
}

func TestBar_IsProportionalAndNeverEmptyForAPositiveNumber(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.Int64Range(1, 1<<40).Draw(t, "most")
		n := rapid.Int64Range(0, most).Draw(t, "n")
		room := rapid.IntRange(1, 200).Draw(t, "room")
		length := utf8.RuneCountInString(bar(n, most, room, rapid.Bool().Draw(t, "blocks")))
		if (length == 0) != (n == 0) || length > room || n == most && length != room {
			t.Fatalf("%d of %d in %d columns: a bar of %d", n, most, room, length)
		}
	})
}

func TestForecast_TimesAreAsPreciseAsTheSteps(t *testing.T) {
	for within, want := range map[time.Duration]string{
		20 * time.Second:    "15:04:05",
		2 * time.Hour:       "15:04",
		24 * time.Hour:      "15:04",
		3 * 24 * time.Hour:  "01-02 15:04",
		90 * 24 * time.Hour: "01-02 15:04",
	} {
		edges := ops.ForecastEdges(within)
		steps := []ops.ForecastStep{{From: at, To: at.Add(edges[1])}, {From: at.Add(edges[len(edges)-2]), To: at.Add(edges[len(edges)-1])}}
		expect.Equal(t, clock(ops.ForecastStepLength(within), steps), want, "within %v", within)
	}
}
