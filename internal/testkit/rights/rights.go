// Package rights reads which ACLs and privileges each part needs: docs/data/access.yaml has those of the core, and access.yaml in the
// folder of a room those of the room. The tables of docs/security.md are generated from them, and tests play them.
package rights

import (
	"cmp"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/template"
	"time"

	"go.yaml.in/yaml/v3"
)

// Rows are the rows of both tables. A row of Kafka is part, resource, name, operation, why; one of Database is part, table, privilege,
// why. The last field may be missing.
type Rows struct {
	Kafka, Database [][]string
	Play            map[string]Play // how a role of a room is played, by its part, which has its name
}

// Play says how a role is played, and when it has used each ACL and each privilege. Statements are those of MySQL, where UTC_TIMESTAMP(3) is now.
type Play struct {
	Environment map[string]string // the variables of the room
	Topics      string            // the section of the room in topics.yaml; "": its sample
	Records     []Record          // on Kafka, before the role begins
	Arrives     []string          // topics that get a record by the role
	Commits     string            // a topic of which the group of the role commits all; "": none
	Before      []string          // statements before the role begins
	Lock        string            // a statement whose locks another program holds meanwhile; "": none does
	Until       string            // a query that counts rows when the role has done everything; "": none
}

// Record is a record of Kafka.
type Record struct {
	Topic, Key, Value string
	Headers           map[string]string
}

// Text returns a text of Play. In it {{prefix}} stands for topics.prefix, and {{at "-1m"}} and {{ms "-1m"}} for the time a minute ago, as
// RFC 3339 and in milliseconds.
func Text(text, prefix string) (string, error) {
	ago := func(d string) (time.Time, error) {
		length, err := time.ParseDuration(d)
		return time.Now().UTC().Add(length), err
	}
	t, err := template.New("").Funcs(template.FuncMap{
		"prefix": func() string { return prefix },
		"at":     func(d string) (string, error) { t, err := ago(d); return t.Format("2006-01-02T15:04:05.000Z"), err },
		"ms":     func(d string) (int64, error) { t, err := ago(d); return t.UnixMilli(), err },
	}).Parse(text)
	if err != nil {
		return "", err
	}
	var all strings.Builder
	err = t.Execute(&all, nil)
	return all.String(), err
}

// Core returns the rows of the core. root is the folder of the repository.
func Core(root string) (Rows, error) { return read(filepath.Join(root, "docs/data/access.yaml")) }

// All returns the rows of the core, and then those of rooms.
func All(root string) (all Rows, err error) {
	all.Play = map[string]Play{}
	rooms, err := filepath.Glob(filepath.Join(root, "rooms/*/access.yaml"))
	for _, name := range append([]string{filepath.Join(root, "docs/data/access.yaml")}, rooms...) {
		rows, failed := read(name)
		err = errors.Join(err, failed)
		all.Kafka, all.Database = append(all.Kafka, rows.Kafka...), append(all.Database, rows.Database...)
		maps.Copy(all.Play, rows.Play)
	}
	return all, err
}

func read(name string) (rows Rows, err error) {
	text, err := os.ReadFile(name)
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
