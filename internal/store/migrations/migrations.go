// Package migrations has the tables of the core, as SQL for each database, and reads such files of rooms too.
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

// Tables are the tables of the core or of a room. Files has the steps that create and change them, in files
// DIALECT/NUMBER.sql or DIALECT/NUMBER_NAME.sql. DIALECT is mysql, postgres or sqlite, and NUMBER begins with 1.
type Tables struct {
	Room  string // "": the core
	Files fs.FS
}

//go:embed mysql postgres sqlite
var files embed.FS

// Core has the tables of the core.
var Core = Tables{Files: files}

// VersionTable has a row for each step of the core that was applied, and RoomTable for each step of a room.
const (
	VersionTable = "orderclose_schema"
	RoomTable    = "orderclose_rooms"
)

// reference is a comment in the first step of the core. Behind it are the tables of the reference schema: orders, lines and stock. If the
// orders are in the shop's own tables, these tables are left out.
const reference = "\n-- The orders of a shop without tables of its own.\n"

// Step is a step of the schema.
type Step struct {
	Room      string // "": of the core
	Number    int64
	File, SQL string // the SQL ends with the row that records the step
}

// Steps returns the steps for a dialect, in their order; if mapped, without the tables of the reference schema. A room has a step 0 before
// them, without statements: from then on a table of the room is one of orderclose. An error names the file.
func (t Tables) Steps(dialect string, mapped bool) (steps []Step, err error) {
	names, err := fs.Glob(t.Files, dialect+"/*.sql") // sorted
	if err == nil && len(names) == 0 {
		err = fmt.Errorf("room %s has no tables for %s", t.Room, dialect)
	}
	record := "INSERT INTO " + VersionTable + " (version_id, is_applied) VALUES (%d, 1);\n"
	if t.Room != "" {
		record = "INSERT INTO " + RoomTable + " (room, number) VALUES ('" + t.Room + "', %d);\n"
		steps = []Step{{t.Room, 0, path.Join(t.Room, "00"), fmt.Sprintf(record, 0)}}
	}
	for _, name := range names {
		file := path.Base(name)
		number, _, _ := strings.Cut(strings.TrimSuffix(file, ".sql"), "_")
		n, wrong := strconv.ParseInt(number, 10, 64)
		if wrong != nil {
			return nil, fmt.Errorf("%s of room %q: %w", name, t.Room, wrong)
		}
		sql, failed := fs.ReadFile(t.Files, name)
		if failed != nil {
			return nil, failed
		}
		text := string(sql)
		if mapped && t.Room == "" {
			text, _, _ = strings.Cut(text, reference)
		}
		steps = append(steps, Step{t.Room, n, path.Join(t.Room, file), text + fmt.Sprintf(record, n)})
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
