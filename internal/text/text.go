// Package text writes values for people and for shells.
package text

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
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

// Harmless escapes the characters that cannot be seen: a terminal executes some of them, and others hide a text or change its direction. It keeps
// line breaks and tabs. Rows of the shop, records and answers of services may contain such characters. A line of JSON stays valid JSON.
func Harmless(s string) string { return escape(s, "\n\t") }

// OneLine is Harmless for a text that must not begin a line of its own. It cuts the result to n characters.
func OneLine(s string, n int) string {
	shown := escape(s, "")
	if runes := []rune(shown); len(runes) > n {
		return string(runes[:n-1]) + "…"
	}
	return shown
}

// escape escapes what cannot be seen and is not in kept.
func escape(s, kept string) string {
	var out strings.Builder
	for _, r := range s {
		switch {
		case unicode.IsGraphic(r) || strings.ContainsRune(kept, r): //mutant:control-characters-shown
			out.WriteRune(r)
		case r == '\n':
			out.WriteString(`\n`)
		default:
			for _, half := range utf16.Encode([]rune{r}) {
				fmt.Fprintf(&out, `\u%04x`, half)
			}
		}
	}
	return out.String()
}

// HarmlessWriter writes to W what Harmless returns of each text. Each Write must have whole characters.
type HarmlessWriter struct{ W io.Writer }

func (h HarmlessWriter) Write(b []byte) (int, error) {
	if _, err := io.WriteString(h.W, Harmless(string(b))); err != nil {
		return 0, err
	}
	return len(b), nil
}
