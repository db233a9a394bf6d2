// Package text writes values for people and for shells.
package text

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"
)

// ShellQuote quotes an order's id for a shell, for commands that people paste.
func ShellQuote(id string) string {
	if id != "" && id[0] != '-' && strings.IndexFunc(id, func(r rune) bool { return !plain(r) }) < 0 {
		return id
	}
	return "'" + strings.ReplaceAll(id, "'", `'\''`) + "'"
}

// plain reports whether a character has no special meaning in a shell.
func plain(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.:@/+", r)
}

// Stamp returns a time in UTC, with milliseconds.
func Stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// PrintAny prints a line with a number, if the number is above 0.
func PrintAny[N int | int64](w io.Writer, n N, format string) {
	if n > 0 {
		fmt.Fprintf(w, format+"\n", n)
	}
}

// Plural returns a number with a noun, in the plural unless the number is 1.
func Plural[N int | int64](n N, thing string) string { return Counted(n, thing, thing+"s") }

// Counted returns a number with the words for one thing or for several.
func Counted[N int | int64](n N, one, several string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, several)
}

// Harmless escapes the characters that a terminal executes, and those that change the direction of a text. It keeps line breaks and tabs. Rows of
// the shop and answers of services may contain such characters.
func Harmless(s string) string {
	var out strings.Builder
	for _, r := range s {
		if unicode.IsControl(r) && r != '\n' && r != '\t' || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 {
			fmt.Fprintf(&out, `\u%04x`, r)
		} else {
			out.WriteRune(r)
		}
	}
	return out.String()
}

// OneLine quotes control characters of a text from outside, and cuts it to n characters.
func OneLine(s string, n int) string {
	quoted := fmt.Sprintf("%q", s)
	shown := strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
	if runes := []rune(shown); len(runes) > n {
		return string(runes[:n-1]) + "…"
	}
	return shown
}
