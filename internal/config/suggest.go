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
	best, least := "", 3 // a name that differs by 3 or more is a guess
	for _, k := range known {
		if d := distance(strings.ToLower(name), strings.ToLower(k)); d < least && d < len(k) {
			best, least = k, d
		}
	}
	return best
}

// distance returns how many letters to insert, remove or replace to turn a into b. It
// returns 3 without counting if the lengths differ by more than 2.
func distance(a, b string) int {
	s, t := []rune(a), []rune(b)
	if far := len(s) - len(t); far > 2 || far < -2 {
		return 3
	}
	row := make([]int, len(t)+1)
	for j := range row {
		row[j] = j
	}
	for i, c := range s {
		diagonal := row[0]
		row[0] = i + 1
		for j, e := range t {
			replace := diagonal
			if c != e {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = min(replace, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(t)]
}
