package cli

import (
	"io"
	"os"
	"strings"
)

// defaultWidth is the width of a chart if w is not a terminal, or its width is unknown.
const defaultWidth = 80

// width returns how many columns w has: the width of a terminal, or else defaultWidth.
func width(w io.Writer) int {
	if f, ok := w.(*os.File); ok && isTerminal(f) {
		if n := columns(f); n > 0 {
			return n
		}
	}
	return defaultWidth
}

// bar returns a bar of at most room columns for n of most. A positive n always has at least
// the smallest mark.
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
