package cli

import (
	"io"
	"os"
	"strings"
)

// plainWidth is how wide a chart is where nobody says how wide it may be.
const plainWidth = 80

// width is how many columns w has: a terminal's own, else plainWidth.
func width(w io.Writer) int {
	if f, ok := w.(*os.File); ok && isTerminal(f) {
		if n := columns(f); n > 0 {
			return n
		}
	}
	return plainWidth
}

// bar draws n of most as a bar of at most room columns. Something is never
// nothing: a bar has at least the smallest mark there is.
func bar(n, most int64, room int, blocks bool) string {
	if n <= 0 || most <= 0 || room <= 0 {
		return ""
	}
	part := float64(n) / float64(most) * float64(room)
	if !blocks {
		return strings.Repeat("#", max(1, int(part+.5)))
	}
	eighths := max(1, int(part*8+.5))
	b := strings.Repeat("█", eighths/8)
	if rest := eighths % 8; rest > 0 {
		b += string([]rune(" ▏▎▍▌▋▊▉")[rest])
	}
	return b
}
