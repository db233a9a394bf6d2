package orderclose_test

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/orderclose/orderclose/internal/testkit/expect"
)

// unusedWords maps words that this project no longer uses to the words that it uses instead. The keys are regular expressions; case does not matter.
var unusedWords = map[string]string{
	`anew`:                          "again, recreated",
	`of late`:                       "recently",
	`whoever`:                       "the noun: the caller, the process",
	`sloppiness|clocksApart`:        "clockSkewTolerance",
	`shunn?(ed|ing|s)?`:             "unavailable",
	`scribbles?`:                    "poisonFreedMemory",
	`pickers`:                       "subscribers",
	`undecided`:                     "in doubt",
	`acquit(ted|s)?`:                "name the state in plain words",
	`(would_)?mend(s|ed|ing)?`:      "fix",
	`graveyard|bur(y|ying|ied|ies)`: "dead letter, add",
	`patience`:                      "adaptive timeout, circuit breaker",
	`story|stories`:                 "history",
	`desk`:                          "development environment",
}

// gone are commands, flags and settings that went, and what there is instead. CHANGELOG.md alone names them: here a class of one letter keeps
// a search for them from finding this file.
var gone = map[string]string{
	`orderclose [s]weeps`:                    "a line of orderclose status, or the table sweeps",
	`orderclose [a]ctions`:                   "a SELECT from operator_actions (docs/security.md)",
	`doctor --[s]tock`:                       "orderclose audit, or the query of docs/runbook.md",
	`p[o]stpone[ds]?|p[o]stponement`:         "pause, or an UPDATE of the due time (docs/runbook.md)",
	`without-[s]tock`:                        "insert the row of stock for a moment (docs/runbook.md)",
	`run [i]ntake|[d]ebezium`:                "the trigger of docs/intake.md",
	`orderclose [t]rigger|trigger --[p]rint`: "the trigger of docs/intake.md",
	`f[o]recast`:                             "a SELECT by due minute (docs/runbook.md)",
	`webhook [a]gain`:                        "events again",
	`records [c]heck`:                        "orderclose order ID",
	`run [s]hadow|shadow [r]eport`:           "audit --tolerance",
	`run [r]elease`:                          "a reader of events (docs/wire.md)",
	`\w*WEB_[C]ONFIG_FILE`:                   "a proxy that names the user (docs/security.md)",
	`order-close-[r]eplay`:                   "the close topic",
	`(pause|resume) --[p]ath`:                "pause, or pause --category",
	`topics [p]lan`:                          "topics check, delays explain --delay",
	`after_[d]elay`:                          "links",
}

// notRead are files that the rule does not bind: other people's words, and data.
var notRead = []string{"CHANGELOG.md", ".git", "bin", "testdata", "go.sum", "LICENSE", "language_test.go"}

// texts are the kinds of files that the rule binds.
var texts = []string{".go", ".md", ".sql", ".sh", ".yaml", ".yml", ".json", ".tpl", ".html", ".tmpl", ".csv", ".service"}

func TestLanguage_UsesNoWordThatWasReplaced(t *testing.T) {
	var words []string
	maps.Copy(unusedWords, gone)
	for word := range unusedWords {
		words = append(words, word)
	}
	unused := regexp.MustCompile(`(?i)\b(` + strings.Join(words, "|") + `)\b`)
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case slices.Contains(notRead, entry.Name()):
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		case entry.IsDir() || !slices.Contains(texts, filepath.Ext(path)):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		n := 0
		for line := range strings.Lines(string(text)) {
			n++
			if found := unused.FindString(line); found != "" {
				t.Errorf("%s:%d: %q is not used any more, write: %s", path, n, found, insteadOf(found))
			}
		}
		return nil
	})
	expect.NoError(t, err)
}

// insteadOf returns what to write instead of an unused word.
func insteadOf(found string) string {
	for word, instead := range unusedWords {
		if regexp.MustCompile(`(?i)^(` + word + `)$`).MatchString(found) {
			return instead
		}
	}
	return "another word"
}
