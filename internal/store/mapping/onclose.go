package mapping

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// IDs is the placeholder of an OnClose statement for the ids of the closed orders.
const IDs = "{ids}"

// SplitOnClose returns the SQL before and behind the placeholder of an OnClose statement.
func SplitOnClose(statement string) (before, behind string) {
	before, behind, _ = strings.Cut(statement, IDs)
	return before, behind
}

// onClose reports the mistakes in the statements of OnClose that their text shows.
func (c *checker) onClose(m *Mapping) {
	for i, statement := range m.OnClose {
		path := fmt.Sprintf("on_close[%d]", i)
		tokens, err := scanSQL(statement)
		var table string
		if err == nil {
			table, err = writtenTable(tokens)
		}
		at := slices.Index(tokens, IDs)
		switch {
		case err != nil:
			c.report(path, err.Error(), "write UPDATE table SET … WHERE …, DELETE FROM table WHERE … or INSERT INTO table …, with one table of yours and without an alias")
		case strings.Count(statement, IDs) != 1 || !startsWith(tokens[max(at-2, 0):], "IN", "(", IDs, ")"):
			c.report(path, "the statement must contain IN ("+IDs+") once, outside of quotes", "write the condition as order_id IN ("+IDs+"): it stands for the ids of the closed orders")
		case negated(tokens[:at]): //mutant:close-changes-others
			c.reportHarm(path, "the statement has NOT before "+IDs, "it could change the rows of all other orders", "write the condition order_id IN ("+IDs+") first, and NOT of other columns behind it")
		case !narrow(tokens, at):
			c.reportHarm(path, "the statement has OR beside "+IDs+", or compares the result of IN ("+IDs+")", "it could change the rows of other orders", "write the condition order_id IN ("+IDs+"), with AND and further conditions behind it; put an OR of other columns into parentheses")
		case m.uses(table):
			c.reportHarm(path, "the statement writes to the table "+table, "a close writes to this table by itself, and the two could undo each other", "write to another table; of an order's own columns, list those that a close sets in set")
		}
	}
}

// writtenTable returns the table to which a statement writes, as the statement names it. The error says
// which part of the statement does not have one of the three shapes of Mapping.OnClose.
func writtenTable(tokens []string) (string, error) {
	kind, name := "", tokens
	for _, words := range [][]string{{"UPDATE"}, {"DELETE", "FROM"}, {"INSERT", "INTO"}} {
		if startsWith(tokens, words...) {
			kind, name = words[0], tokens[len(words):]
		}
	}
	if kind == "" {
		return "", errors.New("the statement begins neither with UPDATE nor with DELETE FROM nor with INSERT INTO")
	}
	n := 1
	if len(name) > 2 && name[1] == "." {
		n = 3
	}
	if len(name) < n || !isName(name[0]) || !isName(name[n-1]) {
		return "", fmt.Errorf("the statement names no table behind %s", kind)
	}
	table := strings.NewReplacer("`", "", `"`, "").Replace(strings.Join(name[:n], ""))
	next, rest := map[string]string{"UPDATE": "SET", "DELETE": "WHERE"}[kind], name[n:]
	if next != "" && !startsWith(rest, next) {
		return "", fmt.Errorf("the statement has more than the table %s between %s and %s", table, kind, next)
	}
	if kind == "UPDATE" && outerWhere(rest) < 0 {
		return "", errors.New("the UPDATE has no WHERE before " + IDs)
	}
	return table, nil
}

// outerWhere returns the position of the WHERE of the statement itself, before the placeholder; -1:
// there is none.
func outerWhere(tokens []string) int {
	depth := 0
	for i, t := range tokens {
		switch {
		case t == "(":
			depth++
		case t == ")":
			depth--
		case t == IDs:
			return -1
		case depth == 0 && strings.EqualFold(t, "WHERE"):
			return i
		}
	}
	return -1
}

// negated reports whether the tokens before the placeholder contain a NOT other than IS NOT NULL. To
// which part of a condition a NOT applies is not examined.
func negated(before []string) bool {
	for i, t := range before {
		not := strings.EqualFold(t, "NOT") && !startsWith(before[i:], "NOT", "NULL")
		if not || t == "!" && !startsWith(before[i:], "!", "=") {
			return true
		}
	}
	return false
}

// narrow reports whether a row that a condition finds must be one of the placeholder's: no OR stands in a parenthesis
// around the placeholder, and nothing compares the result of IN. at is the placeholder's position.
func narrow(tokens []string, at int) bool {
	depth, skip := 0, false                            // depth counts open parentheses that do not stand around the placeholder
	for _, t := range slices.Backward(tokens[:at-1]) { // of IN ( {ids} )
		switch {
		case t == ")":
			depth++
		case t == "(" && depth > 0:
			depth--
		case t == "(": // it stands around the placeholder
			skip = false
		case depth == 0 && strings.EqualFold(t, "WHERE"): // what stands before it is no condition
			skip = true
		case depth == 0 && !skip && isOr(t):
			return false
		}
	}
	behind := tokens[at+2:]
	for len(behind) > 0 && behind[0] == ")" {
		behind = behind[1:]
	}
	if len(behind) > 0 && slices.ContainsFunc([]string{"=", "<", ">", "!", "IS", "IN", "LIKE", "BETWEEN", "THEN", "NOT"}, func(word string) bool { return strings.EqualFold(word, behind[0]) }) {
		return false
	}
	depth = 0
	for _, t := range tokens[at+2:] {
		if depth == 0 && strings.EqualFold(t, "ON") { // the conflict of an INSERT
			break
		}
		switch {
		case t == "(":
			depth++
		case t == ")" && depth > 0:
			depth--
		case isOr(t) && depth == 0:
			return false
		}
	}
	return true
}

// isOr reports whether a token joins conditions of which one is enough. Of || each | is a token.
func isOr(token string) bool {
	return token == "|" || strings.EqualFold(token, "OR") || strings.EqualFold(token, "XOR")
}

// uses reports whether a table is mapped, or is one of orderclose's own.
func (m *Mapping) uses(written string) bool {
	database, name := Split(written)
	if isOwnTable(name) {
		return true
	}
	items, _ := m.tables()
	mapped := []string{m.Orders, items}
	for _, s := range m.Stock {
		mapped = append(mapped, s.Table)
	}
	return slices.ContainsFunc(mapped, func(mapped string) bool {
		if p, err := ParsePattern(mapped); err == nil {
			_, ok := p.Month(name)
			return ok
		}
		in, table := Split(mapped)
		return strings.EqualFold(table, name) && (in == "" || database == "" || strings.EqualFold(in, database))
	})
}

// startsWith reports whether the first tokens are these words, in any case of letters.
func startsWith(tokens []string, words ...string) bool {
	return len(tokens) >= len(words) && slices.EqualFunc(tokens[:len(words)], words, strings.EqualFold)
}

// isName reports whether a token can name a table: a word, or anything in the quotes of MySQL or PostgreSQL.
func isName(token string) bool { return begin.MatchString(token) }

var (
	begin = regexp.MustCompile("^[\\pL\\pN_$`\"]")
	// token matches the placeholder IDs, a text in quotes, a word, the begin of a comment, or a single other
	// character. In a text, a doubled quote and a character behind a backslash do not end the text.
	token = regexp.MustCompile(`(?s)\{ids\}|'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"|` + "`(?:[^`]|``)*`" + `|[\pL\pN_$]+|--|/\*|[^\pZ\s]`)
)

// scanSQL splits a statement into tokens. It refuses a comment, and a second statement.
func scanSQL(statement string) ([]string, error) {
	tokens := token.FindAllString(statement, -1)
	for _, t := range tokens {
		switch t {
		case "'", `"`, "`":
			return nil, fmt.Errorf("the quote %s is not closed", t)
		case "#", "--", "/*":
			return nil, errors.New("the statement has a comment")
		case ";":
			return nil, errors.New("the statement has a ; outside of quotes")
		}
	}
	return tokens, nil
}
