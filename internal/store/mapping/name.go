package mapping

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode"
)

// maxName is how many characters MySQL allows in a name.
const maxName = 64

// checkName returns an error for a string that cannot be the name of a column or table.
func checkName(name string) error {
	if name == "" {
		return errors.New("the name is missing")
	}
	for _, r := range name {
		if r != '_' && r != '$' && !unicode.IsLetter(r) && !unicode.IsDigit(r) || r > 0xFFFF {
			return fmt.Errorf("%q contains %q: orderclose supports letters, digits, _ and $ in names", name, r)
		}
	}
	if len([]rune(name)) > maxName {
		return fmt.Errorf("%q has more than %d letters", name, maxName)
	}
	return nil
}

// checkTable does the same for a table, with or without its database in front.
func checkTable(name string) error {
	database, table, qualified := strings.Cut(name, ".")
	if !qualified {
		return checkName(name)
	}
	return errors.Join(checkName(database), checkName(table))
}

// Quote returns the name of a column or table as it is written in a statement.
func Quote(name string) string { return "`" + strings.ReplaceAll(name, ".", "`.`") + "`" }

// Split returns the database and the name of a table. The database is empty if the table is
// in the database of the connection.
func Split(table string) (database, name string) {
	if database, name, ok := strings.Cut(table, "."); ok {
		return database, name
	}
	return "", table
}

// Month is a calendar month: the year times 12, plus the month counted from 0.
type Month int

// MonthOf returns the month of t in the zone loc.
func MonthOf(t time.Time, loc *time.Location) Month {
	t = t.In(loc)
	return Month(t.Year()*12 + int(t.Month()) - 1)
}

// Pattern is a table name with a placeholder for the month.
type Pattern struct{ before, layout, after string }

var placeholder = regexp.MustCompile(`^([^{}]*)\{(yyyy_?MM)\}([^{}]*)$`)

// ParsePattern parses a name such as orders_{yyyyMM} or orders_{yyyy_MM}.
func ParsePattern(name string) (Pattern, error) {
	parts := placeholder.FindStringSubmatch(name)
	if parts == nil {
		return Pattern{}, fmt.Errorf("%q has no placeholder for the month, {yyyyMM} or {yyyy_MM}", name)
	}
	p := Pattern{parts[1], parts[2], parts[3]}
	return p, checkTable(p.Table(MonthOf(time.Unix(0, 0), time.UTC)))
}

// IsPattern reports whether a name has a placeholder for the month, valid or not.
func IsPattern(name string) bool { return strings.ContainsAny(name, "{}") }

// Table returns the name of the table of month m.
func (p Pattern) Table(m Month) string {
	month := strings.NewReplacer("yyyy", fmt.Sprintf("%04d", int(m)/12), "MM", fmt.Sprintf("%02d", int(m)%12+1)).Replace(p.layout)
	return p.before + month + p.after
}

// Month returns the month of a table, given its name without the database. It returns false
// for a table that does not match the pattern.
func (p Pattern) Month(table string) (Month, bool) {
	database, before := Split(p.before)
	if database == "" {
		before = p.before
	}
	digits, ok := strings.CutPrefix(table, before)
	if ok {
		digits, ok = strings.CutSuffix(digits, p.after)
	}
	if !ok {
		return 0, false
	}
	t, err := time.Parse(strings.NewReplacer("yyyy", "2006", "MM", "01").Replace(p.layout), digits)
	if err != nil {
		return 0, false
	}
	m := MonthOf(t, time.UTC)
	_, name := Split(p.Table(m))
	return m, name == table
}

// Like returns a LIKE pattern that the tables of all months match, and their database,
// which is empty for the database of the connection.
func (p Pattern) Like() (database, like string) {
	database, name := Split(p.Table(0))
	at := len(name) - len(p.layout) - len(p.after)
	return database, name[:at] + strings.Repeat("_", len(p.layout)) + name[at+len(p.layout):]
}
