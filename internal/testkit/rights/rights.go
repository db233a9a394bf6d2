// Package rights reads which ACLs and privileges each part needs, from docs/data/access.yaml. The tables of docs/security.md are generated from
// it, and tests play them.
package rights

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Rows are the rows of both tables. A row of Kafka is part, resource, name, operation, why; one of Database is part, table, privilege,
// why. The last field may be missing.
type Rows struct {
	Kafka, Database [][]string
}

// Read returns the rows. root is the folder of the repository.
func Read(root string) (rows Rows, err error) {
	text, err := os.ReadFile(filepath.Join(root, "docs/data/access.yaml"))
	return rows, errors.Join(err, yaml.Unmarshal(text, &rows))
}

// Why returns the field why of a row that has fields before it.
func Why(row []string, fields int) string { return strings.Join(row[min(fields, len(row)):], "") }

// Grant is what a user of MySQL or MariaDB needs on a table.
type Grant struct {
	Table      string
	Privileges []string
}

// Grants returns what one user needs on MySQL and MariaDB who does all that the rows say, but for migrate.
func (r Rows) Grants() (all []Grant) {
	for _, row := range r.Database {
		if row[0] == "migrate" || strings.HasPrefix(Why(row, 3), "only PostgreSQL") {
			continue
		}
		i := slices.IndexFunc(all, func(g Grant) bool { return g.Table == row[1] })
		if i < 0 {
			i, all = len(all), append(all, Grant{Table: row[1]})
		}
		if g := &all[i]; !slices.Contains(g.Privileges, row[2]) {
			g.Privileges = append(g.Privileges, row[2])
		}
	}
	order := []string{"SELECT", "INSERT", "UPDATE", "DELETE"}
	for _, g := range all {
		slices.SortFunc(g.Privileges, func(a, b string) int { return cmp.Compare(slices.Index(order, a), slices.Index(order, b)) })
	}
	return all
}
