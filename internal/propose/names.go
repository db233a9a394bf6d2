package propose

import (
	_ "embed"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

//go:embed rules.txt
var rulesText string

// lists are the lists of rules.txt, and meanings its expressions, in their order.
var lists, meanings = readRules(rulesText)

// saying is what a word that matches says of an order.
type saying struct {
	what  meaning
	match *regexp.Regexp
}

func readRules(text string) (of map[string][]string, all []saying) {
	of, name := map[string][]string{}, ""
	for line := range strings.Lines(text) {
		if rule, is := strings.CutPrefix(line, "= "); is {
			what, expr, _ := strings.Cut(strings.TrimSpace(rule), " ")
			all = append(all, saying{meaning(what), regexp.MustCompile(expr)})
			continue
		}
		if before, after, is := strings.Cut(line, ":"); is && !strings.HasPrefix(line, " ") && !strings.HasPrefix(line, "#") {
			name, line = before, after
		}
		if !strings.HasPrefix(line, "#") {
			of[name] = append(of[name], strings.Fields(line)...)
		}
	}
	return of, all
}

// meaning is what a value of a status says of an order.
type meaning string

const (
	unknown  meaning = ""
	fresh    meaning = "fresh" // it was just placed: perhaps unpaid
	unpaid   meaning = "unpaid"
	closed   meaning = "closed"   // cancelled or closed
	timedOut meaning = "timedOut" // closed because nobody paid
	paid     meaning = "paid"     // paid, or anything after that
)

// meaningOf returns what a word says of an order.
func meaningOf(word string) meaning {
	for _, m := range meanings {
		if m.match.MatchString(compress(word)) {
			if m.what == "unclear" {
				return unknown
			}
			return m.what
		}
	}
	return unknown
}

// rank returns how certainly a column holds what a role says: 1 is the most certain, and 0 none. strip are parts of the table's name, which
// columns may begin with.
func rank(role, column string, strip []string) int {
	name := compress(column)
	if i := slices.Index(lists[role], name); i >= 0 {
		return i + 1
	}
	for _, s := range append(strip, "fd", "fld", "f", "c", "o") { // f_status, order_create_time
		if rest, ok := strings.CutPrefix(name, s); ok {
			if i := slices.Index(lists[role], rest); i >= 0 {
				return 1000 + i
			}
		}
	}
	return 0
}

// compress writes a name in lower case and without separators: createTime, create_time and CREATE_TIME are one.
func compress(name string) string { return strings.Join(tokens(name), "") }

// tokens returns the words of a name, in lower case: t_orderItem has t, order and item.
func tokens(name string) []string {
	var b strings.Builder
	lower := false
	for _, r := range name {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) || unicode.IsUpper(r) && lower {
			b.WriteByte(' ')
		}
		if lower = unicode.IsLower(r) || unicode.IsDigit(r); unicode.IsLetter(r) || unicode.IsDigit(r) {
			b.WriteRune(unicode.ToLower(r))
		}
	}
	return strings.Fields(b.String())
}

func words(list string) []string { return strings.Fields(list) }

// has says that one of the words is in a list of rules.txt.
func has(of []string, list string) bool {
	return slices.ContainsFunc(of, func(w string) bool { return slices.Contains(lists[list], w) })
}
