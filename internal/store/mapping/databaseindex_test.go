package mapping

import "testing"

// Only a key that the database numbers one after the other takes the place of the index.
func TestFindsByKey(t *testing.T) {
	for name, c := range map[string]struct {
		change func(m *Mapping, c *Column, t *Table)
		want   bool
	}{
		"AUTO_INCREMENT":                     {func(*Mapping, *Column, *Table) {}, true},
		"an identity of PostgreSQL":          {func(_ *Mapping, c *Column, t *Table) { t.Postgres, c.Grows = true, true }, true},
		"a sequence with a cache":            {func(_ *Mapping, _ *Column, t *Table) { t.Postgres = true }, false},
		"a number that a program makes":      {func(_ *Mapping, c *Column, _ *Table) { c.Numbered = false }, false},
		"a key of two columns":               {func(_ *Mapping, _ *Column, t *Table) { t.Indexes[0].Columns = []string{"id", "shop"} }, false},
		"a unique key that is not the first": {func(m *Mapping, _ *Column, t *Table) { m.ID.Index, t.Indexes[0].Name = "no", "no" }, false},
		"a due column":                       {func(m *Mapping, _ *Column, _ *Table) { m.ByRule = false }, false},
		"an index that topics.yaml names":    {func(m *Mapping, _ *Column, _ *Table) { m.DueIndex = "wanted" }, false},
		"tables of months":                   {func(m *Mapping, _ *Column, _ *Table) { m.Shards = &Shards{} }, false},
		"an index on status and creation": {func(_ *Mapping, _ *Column, t *Table) {
			t.Indexes = append(t.Indexes, Index{Name: "i", Columns: []string{"status", "created"}})
		}, false},
	} {
		m := &Mapping{Orders: "t", ID: Key{Column: "id", Type: Integer, Index: primary}, Status: Status{Column: "status"}, Due: TimeColumn{Column: "created"}, ByRule: true}
		column := Column{Type: "bigint", Numbered: true}
		table := Table{Name: "t", Indexes: []Index{{Name: primary, Unique: true, Columns: []string{"id"}}}}
		c.change(m, &column, &table)
		table.Columns = map[string]Column{"id": column}
		if got := m.FindsByKey(table); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
		if d := (databaseChecker{name: "t", table: table}); !c.want && name != "an index on status and creation" {
			if d.needDueIndex(m); len(d.problems) != 1 {
				t.Errorf("%s: the problems are %v", name, d.problems)
			}
		}
	}
}
