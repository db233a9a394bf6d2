package console

import "time"

// The height of a chart in pixels. Its width is that of the page, so places across are in percent.
const (
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

	Quiet  bool   // the bars have no number above
	Layout string // of the labels, as package time has it
}

type bar struct {
	From, To time.Time
	Sum      int64
	Label    time.Time // below the bar; zero: none
	X, Width float64   // in percent
	Middle   float64   // of the bar, for its label
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

// Height and Baseline return where the chart ends, and where its bars stand.
func (chart) Height() int   { return chartHeight }
func (chart) Baseline() int { return chartHeight - chartBottom }

// add adds a bar. count returns the number of each series in it.
func (c *chart) add(from, to time.Time, count func(series int) int64) *bar {
	c.Bars = append(c.Bars, bar{From: from, To: to})
	b := &c.Bars[len(c.Bars)-1]
	for i, name := range c.Series {
		b.Parts = append(b.Parts, barPart{Series: i, Name: name, Count: count(i)})
		b.Sum += b.Parts[i].Count
	}
	return b
}

// placed returns the chart with the places of its bars and of their parts.
func (c chart) placed() chart {
	for _, b := range c.Bars {
		c.Most, c.Total = max(c.Most, b.Sum), c.Total+b.Sum
	}
	slot := 100 / float64(max(1, len(c.Bars)))
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

// Above returns the number above the bar.
func (b bar) Above() float64 { return float64(b.Sum) }

// NumberY returns the y of the number above the bar.
func (b bar) NumberY() float64 { return b.Parts[len(b.Parts)-1].Y - 4 }
