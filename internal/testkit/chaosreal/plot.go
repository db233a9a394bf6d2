//go:build linux

package main

import (
	"fmt"
	"html"
	"math"
	"strings"
	"time"

	"github.com/orderclose/orderclose/internal/testkit/checker"
)

// Sizes of the plots, in pixels.
const (
	plotWidth, plotHeight = 1100.0, 300.0
	left, bottom, top     = 70.0, 30.0, 10.0
)

// maxPoints bounds the points of a line.
const maxPoints = 600

// latenessScale returns the height of a lateness: logarithmic, from 1 ms to 100 s.
func latenessScale(d time.Duration) float64 {
	const decades = 5
	ms := min(max(float64(d)/float64(time.Millisecond), 1), math.Pow10(decades))
	return top + (plotHeight-top-bottom)*(1-math.Log10(ms)/decades)
}

// latenessPlot draws the lateness of the orders of a round by due time, with its faults.
func latenessPlot(n int, r *round) string {
	over := r.over + 20*time.Second // orders are due until some seconds after the last was created
	for _, p := range r.played {
		over = max(over, p.To.Sub(r.began))
	}
	x := func(t time.Time) float64 {
		return left + (plotWidth-left-10)*min(max(float64(t.Sub(r.began))/float64(over), 0), 1)
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<figure><figcaption>Round %d</figcaption><svg viewBox="0 0 %.0f %.0f" role="img" aria-label="lateness over time">`, n, plotWidth, plotHeight)
	for _, p := range r.played {
		from, to := x(p.From), x(p.To)
		fmt.Fprintf(&b, `<rect class="fault" x="%.1f" y="%.1f" width="%.1f" height="%.1f"><title>%s, %.0f s to %.0f s</title></rect>`,
			from, top, max(to-from, 1.5), plotHeight-top-bottom, html.EscapeString(p.Kind), p.From.Sub(r.began).Seconds(), p.To.Sub(r.began).Seconds())
	}
	for ms := 1; ms <= 100_000; ms *= 10 {
		y := latenessScale(time.Duration(ms) * time.Millisecond)
		fmt.Fprintf(&b, `<line class="grid" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/><text x="%.1f" y="%.1f" text-anchor="end">%v</text>`,
			left, plotWidth-10, y, y, left-6, y+4, time.Duration(ms)*time.Millisecond)
	}
	step := max(time.Minute, (over / 10).Truncate(time.Minute))
	for at := time.Duration(0); at <= over; at += step {
		fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" text-anchor="middle">%.0f min</text>`, x(r.began.Add(at)), plotHeight-8, at.Minutes())
	}
	p50, worst := lines(r.trustworthy(), max(time.Second, over/maxPoints), x)
	fmt.Fprintf(&b, `<polyline class="max" points="%s"/><polyline class="p50" points="%s"/></svg></figure>`, worst, p50)
	return b.String()
}

// lines returns the points of the median and of the largest lateness of each interval of due times.
func lines(samples []checker.Sample, interval time.Duration, x func(time.Time) float64) (p50, worst string) {
	var a, b strings.Builder
	for at := 0; at < len(samples); {
		from := samples[at].Due.Truncate(interval)
		var late []time.Duration
		for ; at < len(samples) && samples[at].Due.Before(from.Add(interval)); at++ {
			late = append(late, samples[at].Late)
		}
		fmt.Fprintf(&a, "%.1f,%.1f ", x(from), latenessScale(checker.Quantile(late, 0.5)))
		fmt.Fprintf(&b, "%.1f,%.1f ", x(from), latenessScale(checker.Quantile(late, 1)))
	}
	return a.String(), b.String()
}
