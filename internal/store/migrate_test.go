package store

import (
	"io/fs"
	"os"
	"regexp"
	"slices"
	"testing"
)

// ofTheReference finds statements that create or change a table of the reference schema, by
// names that a shop's own tables may have too.
var ofTheReference = regexp.MustCompile("(?i)\\b(TABLE|INTO|UPDATE|FROM|ON)\\s+(IF\\s+(NOT\\s+)?EXISTS\\s+)?`?(orders|order_items|stock)\\b")

// A step that changes a table of the reference schema and is not in referenceSteps would change
// a shop's own tables.
func TestMigrations_OtherStepsLeaveAShopsTablesAlone(t *testing.T) {
	for name, of := range map[string]fs.FS{"MySQL": migrations, "SQLite": os.DirFS("sqlite")} {
		steps, err := Dialect{Migrations: of}.steps(false)
		if err != nil {
			t.Fatal(err)
		}
		for _, step := range steps {
			found := ofTheReference.FindString(withoutComments(step.sql))
			if found != "" && !slices.Contains(referenceSteps, step.version) {
				t.Errorf("%s of %s has %q: name its version in referenceSteps, or move the statement to a separate step", step.file, name, found)
			}
		}
	}
}

var comment = regexp.MustCompile(`(?m)--.*$`)

func withoutComments(text string) string { return comment.ReplaceAllString(text, "") }
