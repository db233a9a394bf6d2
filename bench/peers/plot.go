package main

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// bar is a line of a plot.
type bar struct {
	label string
	value float64
	text  string // of the value
	own   bool   // of this project
}

const (
	plotWidth  = 760
	plotLeft   = 150 // of the bars
	plotRight  = 110 // for the values
	plotTop    = 46
	plotLine   = 22
	plotBar    = 14
	plotBottom = 12
)

// plot returns an SVG file with a horizontal bar for each value, on a logarithmic scale, because
// the values differ by factors of thousands. A bar of 0 is empty.
func plot(title string, bars []bar) string {
	least, most := math.Inf(1), 0.0
	for _, b := range bars {
		if b.value > 0 {
			least, most = min(least, b.value), max(most, b.value)
		}
	}
	// Whole decades, so that the shortest bar is visible.
	low, high := math.Floor(math.Log10(least)-0.001), math.Ceil(math.Log10(most))
	if most == 0 {
		low, high = 0, 1
	}
	length := func(v float64) float64 {
		if v <= 0 {
			return 0
		}
		return (math.Log10(v) - low) / max(1, high-low) * (plotWidth - plotLeft - plotRight)
	}
	height := plotTop + plotLine*len(bars) + plotBottom
	var s strings.Builder
	fmt.Fprintf(&s, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="sans-serif" font-size="12">`+"\n",
		plotWidth, height, plotWidth, height)
	fmt.Fprintf(&s, `<title>%s</title>`+"\n"+`<rect width="100%%" height="100%%" fill="#ffffff"/>`+"\n", html.EscapeString(title))
	fmt.Fprintf(&s, `<text x="10" y="20" font-size="14" font-weight="bold" fill="#1f2328">%s</text>`+"\n", html.EscapeString(title))
	for decade := low; decade <= high; decade++ {
		x := plotLeft + length(math.Pow(10, decade))
		fmt.Fprintf(&s, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#d0d7de"/>`+"\n", x, plotTop-6, x, height-plotBottom)
		fmt.Fprintf(&s, `<text x="%.1f" y="%d" text-anchor="middle" font-size="10" fill="#656d76">%s</text>`+"\n", x, plotTop-10, number(math.Pow(10, decade)))
	}
	for i, b := range bars {
		y, fill := plotTop+plotLine*i, "#8c959f"
		if b.own {
			fill = "#0969da"
		}
		fmt.Fprintf(&s, `<text x="%d" y="%d" text-anchor="end" fill="#1f2328">%s</text>`+"\n", plotLeft-8, y+plotBar-2, html.EscapeString(b.label))
		fmt.Fprintf(&s, `<rect x="%d" y="%d" width="%.1f" height="%d" fill="%s"/>`+"\n", plotLeft, y, length(b.value), plotBar, fill)
		fmt.Fprintf(&s, `<text x="%.1f" y="%d" fill="#1f2328">%s</text>`+"\n", plotLeft+length(b.value)+6, y+plotBar-2, html.EscapeString(b.text))
	}
	s.WriteString("</svg>\n")
	return s.String()
}

// number prints a value with three digits, and with thousands separated.
func number(v float64) string {
	if v > -999.5 && v < 999.5 {
		return fmt.Sprintf("%.3g", v)
	}
	digits := fmt.Sprintf("%.0f", v)
	var s strings.Builder
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 && digits[i-1] != '-' {
			s.WriteByte(',')
		}
		s.WriteRune(d)
	}
	return s.String()
}
