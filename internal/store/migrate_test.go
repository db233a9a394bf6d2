package store

import (
	"io/fs"
	"regexp"
	"slices"
	"testing"

	"github.com/pressly/goose/v3"
)

// ofTheReference finds statements that create or change a table of the reference schema, by
// names that a shop's own tables may have too.
var ofTheReference = regexp.MustCompile("(?i)\\b(TABLE|INTO|UPDATE|FROM|ON)\\s+(IF\\s+(NOT\\s+)?EXISTS\\s+)?`?(orders|order_items|stock)\\b")

// A step that changes a table of the reference schema and is not in referenceSteps would change
// a shop's own tables.
func TestMigrations_OtherStepsLeaveAShopsTablesAlone(t *testing.T) {
	for _, name := range []DialectName{MySQL, SQLite} {
		d := Dialect{Name: name}
		files, _, err := d.versions(false)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := fs.ReadFile(migrations, "migrations/"+string(name)+"/"+file)
			if err != nil {
				t.Fatal(err)
			}
			version, _ := goose.NumericComponent(file)
			found := ofTheReference.FindString(withoutComments(string(text)))
			if found != "" && !slices.Contains(referenceSteps, version) {
				t.Errorf("%s of %s has %q: name its version in referenceSteps, or move the statement to a separate step", file, name, found)
			}
		}
	}
}

var comment = regexp.MustCompile(`(?m)--.*$`)

func withoutComments(text string) string { return comment.ReplaceAllString(text, "") }
