// Package migrations has the tables of orderclose, as SQL for each database.
package migrations

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strconv"
	"strings"
)

// Files has the steps that create and change the tables, in files DIALECT/NUMBER_NAME.sql. DIALECT is mysql, postgres or sqlite, and NUMBER begins
// with 1. A step is never changed; the next one changes tables. Programs of the last release still work with it. Each statement but the last can
// be repeated, because MySQL commits each by itself.
//
//go:embed mysql postgres sqlite
var Files embed.FS

// VersionTable has a row for each step that was applied.
const VersionTable = "orderclose_schema"

// reference is a comment in the first step. Behind it are the tables of the reference schema: orders, lines and stock. If the
// orders are in the shop's own tables, these tables are left out.
const reference = "\n-- The orders of a shop without tables of its own.\n"

// Step is a step of the schema.
type Step struct {
	Number    int64
	File, SQL string // the SQL ends with the row that records the step
}

// Steps returns the steps of files for a dialect, in their order; if mapped, without the tables of the reference schema. An error names the file.
func Steps(files fs.FS, dialect string, mapped bool) (steps []Step, err error) {
	names, err := fs.Glob(files, dialect+"/*.sql") // sorted
	for _, name := range names {
		file := path.Base(name)
		number, _, _ := strings.Cut(strings.TrimSuffix(file, ".sql"), "_")
		n, wrong := strconv.ParseInt(number, 10, 64)
		if wrong != nil {
			return nil, fmt.Errorf("%s: %w", name, wrong)
		}
		sql, failed := fs.ReadFile(files, name)
		if failed != nil {
			return nil, failed
		}
		text := string(sql)
		if mapped {
			text, _, _ = strings.Cut(text, reference)
		}
		record := fmt.Sprintf("INSERT INTO %s (version_id, is_applied) VALUES (%d, 1);\n", VersionTable, n)
		steps = append(steps, Step{n, file, text + record})
	}
	return steps, err
}

var createTable = regexp.MustCompile(`(?m)^CREATE TABLE (?:IF NOT EXISTS )?(\w+)`)

// Creates returns the names of the tables that a step creates.
func (s Step) Creates() (names []string) {
	for _, found := range createTable.FindAllStringSubmatch(s.SQL, -1) {
		names = append(names, found[1])
	}
	return names
}
