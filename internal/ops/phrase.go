package ops

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/text"
)

// Phrase is a part of a sentence: a format of package fmt and its values. The console translates formats; everything else uses String.
type Phrase struct {
	Format string
	Args   []any
}

// say returns a Phrase. A test of the console finds the formats by the name of this function.
func say(format string, args ...any) Phrase { return Phrase{format, args} }

// String returns the phrase in English, with moments in UTC.
func (p Phrase) String() string { return p.In(p.Format, text.Stamp) }

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
