package console

import (
	_ "embed"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.yaml.in/yaml/v3"
	"golang.org/x/text/language"

	"github.com/orderclose/orderclose/internal/ops"
)

// languages are the languages of the console, in the order of matcher. The first is for browsers that
// ask for another one.
var languages = []string{"en", "zh"}

//go:embed texts.yaml
var textsYAML []byte

// texts returns every text of the console: by key, then by language. Programs that show no
// page do not parse them.
var texts = sync.OnceValue(func() map[string]map[string]string {
	var m map[string]map[string]string
	if err := yaml.Unmarshal(textsYAML, &m); err != nil {
		panic(fmt.Sprintf("console: texts.yaml: %v", err))
	}
	return m
})

// phrases returns the Chinese of each phrase of internal/ops, by its English format.
var phrases = sync.OnceValue(func() map[string]string {
	m := map[string]string{}
	for key, byLanguage := range texts() {
		if strings.HasPrefix(key, "phrase.") {
			m[byLanguage["en"]] = byLanguage["zh"]
		}
	}
	return m
})

// phrase returns a text in a language, with its %s replaced. A missing text is shown as its key.
func phrase(lang, key string, args ...any) string {
	format, ok := texts()[key][lang]
	if !ok {
		return key
	}
	if len(args) == 0 {
		return format
	}
	return fmt.Sprintf(format, args...)
}

// translate returns a sentence of internal/ops, with its moments as at writes them. The key of a phrase is its format.
func translate(lang string, s ops.Sentence, at func(time.Time) string) string {
	parts := make([]string, len(s))
	for i, p := range s {
		format := p.Format
		if other := phrases()[p.Format]; lang == "zh" && other != "" {
			format = other
		}
		parts[i] = p.In(format, at)
	}
	separator := "; "
	if lang == "zh" {
		separator = "；"
	}
	return strings.Join(parts, separator)
}

var matcher = language.NewMatcher([]language.Tag{language.English, language.Chinese})

// languageOf returns the language of a browser: the one of its choice, or else that of languages
// which fits the header Accept-Language best.
func languageOf(chosen, accepted string) string {
	_, i := language.MatchStrings(matcher, chosen, accepted)
	return languages[i]
}
