package ops

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/orderclose/orderclose/internal/config"
)

// Phrase is a part of a sentence: a format of package fmt and its values. The console translates
// formats; everything else uses String.
type Phrase struct {
	Format string
	Args   []any
}

// say returns a Phrase. A test of the console finds the formats by the name of this function.
func say(format string, args ...any) Phrase { return Phrase{format, args} }

// String returns the phrase in English, with moments in UTC.
func (p Phrase) String() string { return p.In(p.Format, stamp) }

// In returns the phrase in another format, such as that of another language. at writes the moments among the arguments.
func (p Phrase) In(format string, at func(time.Time) string) string {
	args := slices.Clone(p.Args)
	for i, arg := range args {
		switch v := arg.(type) {
		case time.Time:
			args[i] = at(v)
		case time.Duration:
			args[i] = config.FormatDuration(v)
		}
	}
	return fmt.Sprintf(format, args...)
}

// Sentence consists of phrases. In JSON it is the text of String.
type Sentence []Phrase

// String returns the sentence in English.
func (s Sentence) String() string {
	parts := make([]string, len(s))
	for i, p := range s {
		parts[i] = p.String()
	}
	return strings.Join(parts, "; ")
}

// MarshalJSON implements json.Marshaler.
func (s Sentence) MarshalJSON() ([]byte, error) { return json.Marshal(s.String()) }

// UnmarshalJSON implements json.Unmarshaler.
func (s *Sentence) UnmarshalJSON(b []byte) error {
	var text string
	err := json.Unmarshal(b, &text)
	*s = Sentence{{"%s", []any{text}}}
	return err
}

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

func stamp(t time.Time) string { return Stamp(t) }

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

// OneLine quotes control characters of a text from outside, and cuts it to n characters.
func OneLine(s string, n int) string {
	quoted := fmt.Sprintf("%q", s)
	shown := strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
	if runes := []rune(shown); len(runes) > n {
		return string(runes[:n-1]) + "…"
	}
	return shown
}
