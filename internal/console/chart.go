package console

import (
	"time"

	"github.com/orderclose/orderclose/internal/ops"
)

// The size of a chart, in the units of its SVG.
const (
	chartWidth  = 360
	chartHeight = 150
	chartTop    = 16 // above the highest bar, for its number
	chartBottom = 20 // below the bars, for the times
)

// chart is a bar chart whose bars are stacked. A template draws it.
type chart struct {
	Key    string // of its title in the catalogue
	Bars   []bar
	Series []string // the names of the parts of a bar, from the bottom up
	Most   int64    // the largest sum of a bar
	Total  int64

	Buckets bool // the series are buckets
}

// bar is one bar, in units of the SVG.
type bar struct {
	From, To time.Time
	Sum      int64
	Label    string // below the bar; empty: none
	Quiet    bool   // without the number above
	Chosen   bool   // it stands out
	Link     string // what a click opens; empty: nothing
	X, Width float64
	Middle   float64 // of the bar, for its label
	Parts    []barPart
}

// barPart is one series in one bar.
type barPart struct {
	Series int // its index
	Name   string
	Count  int64
	Y      float64
	Height float64
}

// Size returns what the attribute viewBox needs.
func (chart) Size() (s struct{ Width, Height, Baseline float64 }) {
	s.Width, s.Height, s.Baseline = chartWidth, chartHeight, chartHeight-chartBottom
	return s
}

// forecastCharts returns a chart of each horizon.
func forecastCharts(f ops.Forecast) []chart {
	all := make([]chart, len(horizons))
	for i, h := range horizons {
		c := chart{Key: h.key, Buckets: true}
		for _, b := range f.Buckets {
			c.Series = append(c.Series, b.Length)
		}
		for from := time.Duration(0); from < h.within; from += h.step {
			one := bar{From: f.At.Add(from), To: f.At.Add(from + h.step)}
			for s, b := range f.Buckets {
				part := barPart{Series: s, Name: b.Length}
				for _, step := range b.Steps {
					if !step.From.Before(one.From) && !step.To.After(one.To) {
						part.Count += step.Records
					}
				}
				one.Sum += part.Count
				one.Parts = append(one.Parts, part)
			}
			if len(c.Bars)%2 == 1 { // all would overlap
				one.Label = one.To.UTC().Format("15:04")
			}
			c.Bars = append(c.Bars, one)
		}
		all[i] = c.placed()
	}
	return all
}

// placed returns the chart with the places of its bars and of their parts.
func (c chart) placed() chart {
	for _, b := range c.Bars {
		c.Most, c.Total = max(c.Most, b.Sum), c.Total+b.Sum
	}
	slot := float64(chartWidth) / float64(max(1, len(c.Bars)))
	scale := float64(chartHeight-chartTop-chartBottom) / float64(max(1, c.Most))
	for i := range c.Bars {
		b := &c.Bars[i]
		b.X, b.Width, b.Middle = float64(i)*slot+slot*0.1, slot*0.8, (float64(i)+0.5)*slot
		y := float64(chartHeight - chartBottom)
		for j := range b.Parts {
			p := &b.Parts[j]
			p.Height = float64(p.Count) * scale
			y -= p.Height
			p.Y = y
		}
	}
	return c
}

// NumberY returns the y of the number above the bar.
func (b bar) NumberY() float64 { return b.Parts[len(b.Parts)-1].Y - 4 }

// Linked reports whether the bars can be chosen.
func (c chart) Linked() bool { return len(c.Bars) > 0 && c.Bars[0].Link != "" }
