package store

import (
	"io/fs"
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/orderclose/orderclose/internal/store/postgres"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// ofTheReference finds statements that create or change a table of the reference schema, by
// names that a shop's own tables may have too.
var ofTheReference = regexp.MustCompile("(?i)\\b(TABLE|INTO|UPDATE|FROM|ON)\\s+(IF\\s+(NOT\\s+)?EXISTS\\s+)?`?(orders|order_items|stock)\\b")

// migrationsOf has the steps of each kind of database.
var migrationsOf = map[string]fs.FS{"MySQL": migrations, "PostgreSQL": postgres.Migrations, "SQLite": os.DirFS("sqlite")}

// column matches the definition of a column, the name of a table that follows CREATE or ALTER, and the steps that a step
// stands for.
var column = regexp.MustCompile(`(?m)^  ([a-z_]+) |^(?:CREATE|ALTER) TABLE (?:IF NOT EXISTS )?(\w+)(?: ADD COLUMN (?:IF NOT EXISTS ` +
	`)?(\w+))?|^(INSERT INTO .*)$`)

func TestMigrations_EachDatabaseHasTheSameStepsTablesAndColumns(t *testing.T) {
	definitions := func(of fs.FS) (all []string) {
		steps := must.Get(Dialect{Migrations: of}.steps(false))(t)
		for _, step := range steps {
			all = append(all, step.file)
			for _, found := range column.FindAllStringSubmatch(withoutComments(step.sql), -1) {
				all = append(all, found[1:]...)
			}
		}
		slices.Sort(all)
		return slices.DeleteFunc(all, func(part string) bool { return part == "" || part == "receipts" }) // MySQL alters it to add an index
	}
	want := definitions(migrations)
	for name, of := range migrationsOf {
		if got := definitions(of); !slices.Equal(got, want) {
			t.Errorf("%s has %q, MySQL %q", name, got, want)
		}
	}
}

// A step that changes a table of the reference schema and is not in referenceSteps would change
// a shop's own tables.
func TestMigrations_OtherStepsLeaveAShopsTablesAlone(t *testing.T) {
	for name, of := range migrationsOf {
		steps := must.Get(Dialect{Migrations: of}.steps(false))(t)
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
