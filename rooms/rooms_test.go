package rooms

import (
	"testing"

	"github.com/orderclose/orderclose/internal/store/migrations"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// Settings: the tables of a room are created if topics.yaml has its key.
func TestAll_RoomsHaveTheSameStepsAndTablesOnEachDatabase(t *testing.T) {
	for _, r := range All() {
		if r.Tables == nil {
			continue
		}
		expect.That(t, r.Settings != nil, "room %s has tables and no key of topics.yaml", r.Name)
		definitions := func(dialect string) (all [][]string) {
			for i, step := range must.Get(migrations.Tables{Room: r.Name, Files: r.Tables}.Steps(dialect, false))(t) {
				expect.Equal(t, step.Number, int64(i), "number of %s for %s", step.File, dialect)
				all = append(all, append(step.Creates(), step.File))
			}
			return all
		}
		for _, dialect := range []string{"postgres", "sqlite"} {
			expect.Same(t, definitions(dialect), definitions("mysql"), "steps and tables of room %s for %s", r.Name, dialect)
		}
	}
}
