package orderclose_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// unusedWords maps words that this project no longer uses to the words that it uses
// instead. The keys are regular expressions; case does not matter.
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
	`doctor --stock`:                "orderclose audit, or the query of docs/runbook.md",
	`orderclose forecast`:           "a SELECT by due minute (docs/runbook.md)",
}

// notRead are files that the rule does not bind: other people's words, and data.
var notRead = []string{".git", "bin", "testdata", "go.sum", "LICENSE", "language_test.go"}

func TestLanguage_UsesNoWordThatWasReplaced(t *testing.T) {
	var words []string
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
		case entry.IsDir() || !slices.Contains([]string{".go", ".md", ".sql", ".sh", ".yaml"}, filepath.Ext(path)):
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
	if err != nil {
		t.Error(err)
	}
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
