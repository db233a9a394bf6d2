// Package settings lists the variables that database servers have for themselves and for each session, and what orderclose does about each.
// In settings.csv a variable is one of these:
//   - forced: each session has the value.
//   - limit: each session gets the value. doctor says if it has another one, because a proxy may ignore the assignment.
//   - refused: a session with another value is not used.
//   - set: it is set in another way.
//   - fails: another value makes statements fail, and none wrong.
//   - harmless: each value is.
//
// The last column says why.
package settings

import (
	_ "embed"
	"encoding/csv"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
)

//go:embed settings.csv
var file string

// The servers of the list.
const MySQL, MariaDB, Postgres = "MySQL", "MariaDB", "PostgreSQL"

// Server returns the name in the list of the server that calls itself this.
func Server(version string) string {
	for _, server := range []string{MariaDB, Postgres} {
		if strings.Contains(version, server) {
			return server
		}
	}
	return MySQL
}

// Setting is a row of the list.
type Setting struct {
	Servers, What string
	Names         []string // % stands for any text
	Value         string   // as SQL writes it; PostgreSQL: as the server shows it
}

var all = sync.OnceValue(func() (all []Setting) {
	rows, err := csv.NewReader(strings.NewReader(file)).ReadAll()
	if err != nil {
		panic("settings.csv: " + err.Error()) // a test reads it
	}
	for _, row := range rows[1:] {
		all = append(all, Setting{row[0], row[1], strings.Fields(row[2]), row[3]})
	}
	return all
})

// Of returns the rows of a server about which something is done.
func Of(server, what string) []Setting {
	return slices.DeleteFunc(slices.Clone(all()), func(s Setting) bool { return s.What != what || !s.on(server) })
}

func (s Setting) on(server string) bool { return slices.Contains(strings.Fields(s.Servers), server) }

// Find returns the row of a variable of a server; one without names: the list does not know the variable.
func Find(server, variable string) Setting {
	for _, s := range all() {
		for _, name := range s.Names {
			if is, _ := path.Match(strings.ToLower(strings.ReplaceAll(name, "%", "*")), strings.ToLower(variable)); is && s.on(server) {
				return s
			}
		}
	}
	return Setting{}
}

// MySQLAssignments writes the forced values and the limits, for SET.
func MySQLAssignments() string {
	return strings.TrimPrefix(eachMySQL("forced", ", %s = %s")+eachMySQL("limit", ", %s = %s"), ", ")
}

// MySQLWrong is an expression: the names of the variables that do not have their forced values.
func MySQLWrong() string {
	return "CONCAT_WS(', '" + strings.ReplaceAll(eachMySQL("forced", ", IF(@@session.%s <=> %s, NULL, '%[1]s')"), "<=> DEFAULT", "<=> 'DEFAULT'") + ")"
}

// MySQLOver is an expression: the limits that a session does not keep, with their values.
func MySQLOver() string {
	return "CONCAT_WS(', '" + eachMySQL("limit", ", IF(@@session.%s BETWEEN 1 AND %s, NULL, CONCAT('%[1]s is ', @@session.%[1]s))") + ")"
}

// eachMySQL writes each variable about which this is done. What only MySQL, only MariaDB, or only a newer version of one has is in a comment that only that
// server executes.
func eachMySQL(what, format string) (text string) {
	for _, on := range [][2]string{{"MySQL MariaDB", "%s"}, {MySQL, " /*!80001 %s */"}, {MariaDB, " /*M!100600 %s */"},
		{MariaDB + " 10.11.6", " /*M!101106 %s */"}} {
		part := ""
		for _, s := range all() {
			if s.Servers == on[0] && s.What == what {
				part += fmt.Sprintf(format, s.Names[0], s.Value)
			}
		}
		text += fmt.Sprintf(on[1], part)
	}
	return text
}

// PostgresWrong is an expression: the names and values of the variables that do not have their forced values, or have refused ones.
func PostgresWrong() string {
	text := "concat_ws(', '"
	for _, s := range append(Of(Postgres, "forced"), Of(Postgres, "refused")...) {
		text += fmt.Sprintf(", CASE WHEN current_setting('%[1]s', true) <> '%[2]s' THEN '%[1]s is ' || current_setting('%[1]s') || ', not %[2]s' END",
			s.Names[0], s.Value)
	}
	return text + ")"
}
