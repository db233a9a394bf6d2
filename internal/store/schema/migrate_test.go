package schema

import (
	"regexp"
	"slices"
	"testing"
	"testing/fstest"

	"github.com/orderclose/orderclose/internal/store/internal/db"
	"github.com/orderclose/orderclose/internal/store/migrations"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// ofTheReference finds statements that create or change a table of the reference schema, by names that a shop's own tables may have too.
var ofTheReference = regexp.MustCompile("(?i)\\b(TABLE|INTO|UPDATE|FROM|ON)\\s+(IF\\s+(NOT\\s+)?EXISTS\\s+)?`?(orders|order_items|stock)\\b")

var dialects = []db.DialectName{db.MySQL, db.Postgres, db.SQLite}

// column matches the definition of a column, the name of a table that follows CREATE or ALTER, and the row of a step.
var column = regexp.MustCompile(`(?m)^  ([a-z_]+) |^(?:CREATE|ALTER) TABLE (?:IF NOT EXISTS )?(\w+)(?: ADD COLUMN (?:IF NOT EXISTS ` +
	`)?(\w+))?|^(INSERT INTO orderclose_schema .*)$`)

func TestMigrations_EachDatabaseHasTheSameStepsTablesAndColumns(t *testing.T) {
	definitions := func(of db.DialectName) (all []string) {
		steps := must.Get(migrations.Steps(migrations.Files, string(of), false))(t)
		for i, step := range steps {
			expect.That(t, i == 0 || step.Number > steps[i-1].Number, "%s has the number of an earlier step", step.File)
			all = append(all, step.File)
			for _, found := range column.FindAllStringSubmatch(withoutComments(step.SQL), -1) {
				all = append(all, found[1:]...)
			}
		}
		slices.Sort(all)
		return all
	}
	want := definitions(db.MySQL)
	for _, of := range dialects {
		got := definitions(of)
		expect.That(t, slices.Equal(got, want), "%s has %q, MySQL %q", of, got, want)
	}
}

// A step that changes a table of the reference schema, and is applied for a mapping too, would change a shop's own tables.
func TestMigrations_OtherStepsLeaveAShopsTablesAlone(t *testing.T) {
	for _, of := range dialects {
		steps := must.Get(migrations.Steps(migrations.Files, string(of), true))(t)
		for _, step := range steps {
			if found := ofTheReference.FindString(withoutComments(step.SQL)); found != "" {
				t.Errorf("%s of %s has %q: move the statement behind the line of the reference schema, from which on migrations.Steps leaves out all", step.File, of, found)
			}
		}
	}
}

func TestMigrations_AStepWithoutANumberIsAnError(t *testing.T) {
	_, err := migrations.Steps(fstest.MapFS{"sqlite/one.sql": {}}, "sqlite", false)
	expect.Says(t, err, "sqlite/one.sql", "files")
}

var comment = regexp.MustCompile(`(?m)--.*$`)

func withoutComments(text string) string { return comment.ReplaceAllString(text, "") }
