package cli

import (
	"io"
	"testing"
	"time"

	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/testkit/expect"
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
	golden(t, "forecast_sparse", func(w io.Writer) { printForecast(w, sparseForecast()) })
	golden(t, "forecast", func(w io.Writer) { printForecast(w, sampleForecast()) })
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
		expect.Equal(t, timeLayout(ops.ForecastStepLength(within), steps), want, "within %v", within)
	}
}
