package tables

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode"
)

// maxName is how many letters MySQL takes in a name.
const maxName = 64

// checkName refuses what cannot be the name of a column or a table.
func checkName(name string) error {
	if name == "" {
		return errors.New("the name is missing")
	}
	for _, r := range name {
		if r != '_' && r != '$' && !unicode.IsLetter(r) && !unicode.IsDigit(r) || r > 0xFFFF {
			return fmt.Errorf("%q has %q in it: names have letters, digits, _ and $", name, r)
		}
	}
	if len([]rune(name)) > maxName {
		return fmt.Errorf("%q has more than %d letters", name, maxName)
	}
	return nil
}

// checkTable refuses what cannot be a table, with its database before it or not.
func checkTable(name string) error {
	database, table, qualified := strings.Cut(name, ".")
	if !qualified {
		return checkName(name)
	}
	return errors.Join(checkName(database), checkName(table))
}

// Quote is the name of a column or a table as it stands in a statement.
func Quote(name string) string { return "`" + strings.ReplaceAll(name, ".", "`.`") + "`" }

// Split is a table's database, empty for the one that the connection is in, and
// its name.
func Split(table string) (database, name string) {
	if database, name, ok := strings.Cut(table, "."); ok {
		return database, name
	}
	return "", table
}

// Month is a calendar month: twelve times the year and the month from 0 on.
type Month int

// MonthOf is the month that t lies in, where loc is.
func MonthOf(t time.Time, loc *time.Location) Month {
	t = t.In(loc)
	return Month(t.Year()*12 + int(t.Month()) - 1)
}

// Pattern is the name of a table with a place for the month.
type Pattern struct{ before, layout, after string }

var place = regexp.MustCompile(`^([^{}]*)\{(yyyy_?MM)\}([^{}]*)$`)

// ParsePattern reads a name such as orders_{yyyyMM} or orders_{yyyy_MM}.
func ParsePattern(name string) (Pattern, error) {
	parts := place.FindStringSubmatch(name)
	if parts == nil {
		return Pattern{}, fmt.Errorf("%q has no place for the month, {yyyyMM} or {yyyy_MM}", name)
	}
	p := Pattern{parts[1], parts[2], parts[3]}
	return p, checkTable(p.Table(MonthOf(time.Unix(0, 0), time.UTC)))
}

// IsPattern tells whether a name has a place for the month, or something like it.
func IsPattern(name string) bool { return strings.ContainsAny(name, "{}") }

// Table is the name of the month's table.
func (p Pattern) Table(m Month) string {
	month := strings.NewReplacer("yyyy", fmt.Sprintf("%04d", int(m)/12), "MM", fmt.Sprintf("%02d", int(m)%12+1)).Replace(p.layout)
	return p.before + month + p.after
}

// Month is the month whose table has that name, without its database; false if it
// is another table.
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

// Like is a pattern for LIKE that every month's table fits, and the database they
// are in, empty for the connection's own.
func (p Pattern) Like() (database, like string) {
	database, name := Split(p.Table(0))
	at := len(name) - len(p.layout) - len(p.after)
	return database, name[:at] + strings.Repeat("_", len(p.layout)) + name[at+len(p.layout):]
}
