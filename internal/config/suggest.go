package config

import "strings"

// suggest says which of the known keys somebody may have meant; if none is
// close, it lists them.
func suggest(name string, known []string) string {
	if best := closest(name, known); best != "" {
		return "did you mean " + best + "?"
	}
	return "known here: " + strings.Join(known, ", ")
}

// closest is the known key that is a slip or two away, or "".
func closest(name string, known []string) string {
	best, least := "", 3 // further away than two slips is a guess
	for _, k := range known {
		if d := distance(strings.ToLower(name), k); d < least && d < len(k) {
			best, least = k, d
		}
	}
	return best
}

// distance counts the letters to insert, remove or replace to make b of a. Words
// that differ in length by many are not looked at: they are far apart.
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
