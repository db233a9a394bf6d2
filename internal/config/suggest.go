package config

import (
	"strings"
)

// suggest names the known key that is most similar to name. If no key is similar, it
// lists all known keys.
func suggest(name string, known []string) string {
	if best := Closest(name, known); best != "" {
		return "did you mean " + best + "?"
	}
	return "known here: " + strings.Join(known, ", ")
}

// Closest returns the known name that differs from name by at most two letters, or "". Case does not matter.
func Closest(name string, known []string) string {
	for n := range 3 { // a name that differs by 3 or more is a guess
		for _, k := range known {
			if n < len(k) && near([]rune(strings.ToLower(name)), []rune(strings.ToLower(k)), n) {
				return k
			}
		}
	}
	return ""
}

// near reports whether n letters are enough to insert, remove or replace to turn a into b.
func near(a, b []rune, n int) bool {
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	longer, other := len(a) > 0, len(b) > 0
	return !longer && !other || n > 0 &&
		(longer && near(a[1:], b, n-1) || other && near(a, b[1:], n-1) || longer && other && near(a[1:], b[1:], n-1))
}
