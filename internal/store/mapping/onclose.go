package mapping

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
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
		if strings.Count(statement, IDs) != 1 {
			c.report(path, "the statement must contain "+IDs+" once, outside of quotes", "write the condition as order_id IN ("+IDs+"): it stands for the ids of the closed orders")
			continue
		}
		tokens, err := scanSQL(strings.Replace(statement, IDs, idsToken, 1))
		var written []tableName
		if err == nil {
			written, err = writtenTables(tokens)
		}
		if at := slices.IndexFunc(tokens, func(t token) bool { return t.is(idsToken) }); err == nil && at < 0 {
			c.report(path, "the statement has "+IDs+" inside quotes or a word, so no row would match", "write it without quotes: order_id IN ("+IDs+")")
			continue
		} else if err == nil && negated(tokens, at) {
			c.reportHarm(path, "the statement has NOT before "+IDs, "it would change the rows of all other orders", "write the condition as order_id IN ("+IDs+"), and NOT of other columns behind it")
			continue
		}
		if err != nil {
			c.report(path, err.Error(), "write one INSERT, UPDATE or DELETE of one table of yours")
			continue
		}
		for _, t := range written {
			if m.uses(t) {
				c.reportHarm(path, fmt.Sprintf("the statement writes to the table %s", t.name), "a close writes to this table by itself, and the two could undo each other", "write to another table; of an order's own columns, list those that a close sets in set")
			}
		}
	}
}

// idsToken stands for the ids while a statement is read.
const idsToken = "ORDERCLOSE_IDS"

// negated reports whether a NOT applies to the token at a position: it is before the token, and its
// operand has not ended there. ALL in place of IN is negated too, since it is useful with <> only.
func negated(tokens []token, at int) bool {
	if at > 1 && tokens[at-2].is("ALL") {
		return true
	}
	for i, not := range tokens[:at] {
		ends := func(t token) bool {
			return t.depth < not.depth || t.depth == not.depth && t.is("AND", "OR", "XOR", "WHERE", "ON", "SET", ",")
		}
		if (not.is("NOT") || not.is("!") && !tokens[i+1].is("=")) && !slices.ContainsFunc(tokens[i+1:at], ends) {
			return true
		}
	}
	return false
}

// uses reports whether a table is mapped, or is one of orderclose's own.
func (m *Mapping) uses(t tableName) bool {
	if isOwnTable(t.name) {
		return true
	}
	items, stock := m.tables()
	return slices.ContainsFunc([]string{m.Orders, items, stock}, func(name string) bool {
		if p, err := ParsePattern(name); err == nil {
			_, ok := p.Month(t.name)
			return ok
		}
		database, table := Split(name)
		return strings.EqualFold(table, t.name) && (database == "" || t.database == "" || strings.EqualFold(database, t.database))
	})
}

// tableName is a table as a statement names it. database is empty if the statement does not
// name it.
type tableName struct{ database, name string }

// token is a word, a value in quotes, or a single other character of a statement.
type token struct {
	text   string
	word   bool // a keyword or a name
	quoted bool // a name in backquotes, or a value in quotes: never a keyword
	depth  int  // how many parentheses are around the token; a parenthesis is not around itself
}

// is reports whether the token is one of the keywords, which are in capitals, or of the characters.
func (t token) is(any ...string) bool {
	return !t.quoted && slices.Contains(any, strings.ToUpper(t.text))
}

// scanSQL splits a statement into tokens.
func scanSQL(statement string) ([]token, error) {
	var tokens []token
	depth := 0
	s := []rune(statement)
	for i := 0; i < len(s); {
		switch r := s[i]; {
		case unicode.IsSpace(r):
			i++
		case r == '\'' || r == '"' || r == '`':
			end := quoteEnd(s, i)
			if end < 0 {
				return nil, fmt.Errorf("the quote %c is not closed", r)
			}
			tokens = append(tokens, token{string(s[i+1 : end]), r == '`', true, depth})
			i = end + 1
		case r == '#' || r == '-' && i+1 < len(s) && s[i+1] == '-' || r == '/' && i+1 < len(s) && s[i+1] == '*':
			return nil, errors.New("the statement has a comment")
		case r == '?' || r == ';':
			return nil, fmt.Errorf("the statement has a %c outside of quotes", r)
		case inWord(r):
			end := i
			for end < len(s) && inWord(s[end]) {
				end++
			}
			tokens = append(tokens, token{string(s[i:end]), true, false, depth})
			i = end
		default:
			if r == ')' {
				depth--
			}
			tokens = append(tokens, token{string(r), false, false, depth})
			if r == '(' {
				depth++
			}
			i++
		}
	}
	return tokens, nil
}

func inWord(r rune) bool {
	return r == '_' || r == '$' || unicode.IsLetter(r) || unicode.IsDigit(r)
}

// quoteEnd returns the position of the quote that closes the one at i, or -1. A doubled quote, and a
// character behind a backslash, are part of the value.
func quoteEnd(s []rune, i int) int {
	for j := i + 1; j < len(s); j++ {
		switch {
		case s[j] == '\\' && s[i] != '`':
			j++
		case s[j] == s[i] && j+1 < len(s) && s[j+1] == s[i]:
			j++
		case s[j] == s[i]:
			return j
		}
	}
	return -1
}

// writtenTables returns the tables to which a statement writes.
func writtenTables(tokens []token) ([]tableName, error) {
	p := &sqlParser{tokens: tokens}
	switch {
	case p.accept("INSERT"):
		p.acceptAll("LOW_PRIORITY", "DELAYED", "HIGH_PRIORITY", "IGNORE", "INTO")
		t, err := p.table()
		return []tableName{t}, err
	case p.accept("DELETE"):
		p.acceptAll("LOW_PRIORITY", "QUICK", "IGNORE")
		if !p.accept("FROM") {
			return nil, errors.New("the statement deletes from several tables")
		}
		t, err := p.table()
		if err == nil && (p.peek().is(",", ".") || p.has("USING")) {
			err = errors.New("the statement deletes from several tables")
		}
		return []tableName{t}, err
	case p.accept("UPDATE"):
		p.acceptAll("LOW_PRIORITY", "IGNORE")
		return p.updated()
	}
	return nil, errors.New("the statement is not an INSERT, UPDATE or DELETE")
}

// sqlParser reads the tokens of a statement.
type sqlParser struct {
	tokens []token
	at     int
}

func (p *sqlParser) peek() token {
	if p.at < len(p.tokens) {
		return p.tokens[p.at]
	}
	return token{}
}

func (p *sqlParser) accept(any ...string) bool {
	ok := p.at < len(p.tokens) && p.peek().is(any...)
	if ok {
		p.at++
	}
	return ok
}

func (p *sqlParser) acceptAll(any ...string) {
	for p.accept(any...) {
	}
}

// has reports whether a keyword follows outside of parentheses.
func (p *sqlParser) has(keyword string) bool {
	return slices.ContainsFunc(p.tokens[p.at:], func(t token) bool { return t.depth == 0 && t.is(keyword) })
}

// names reads a name, or names with dots between them.
func (p *sqlParser) names() (names []string) {
	for p.peek().word {
		names = append(names, p.peek().text)
		p.at++
		if !p.accept(".") {
			break
		}
	}
	return names
}

func (p *sqlParser) table() (tableName, error) {
	switch names := p.names(); len(names) {
	case 1:
		return tableName{name: names[0]}, nil
	case 2:
		return tableName{names[0], names[1]}, nil
	}
	return tableName{}, errors.New("the statement does not name a table where one is expected")
}

// skipParentheses skips everything up to the parenthesis that closes the one that comes next.
func (p *sqlParser) skipParentheses() {
	around := p.peek().depth
	for p.at++; p.at < len(p.tokens) && p.peek().depth > around; p.at++ {
	}
	p.at = min(p.at+1, len(p.tokens))
}

// updated returns the tables whose columns an UPDATE sets. It begins behind the keyword UPDATE.
func (p *sqlParser) updated() ([]tableName, error) {
	known, err := p.references()
	if err != nil {
		return nil, err
	}
	var written []tableName
	for expectColumn := true; p.at < len(p.tokens) && !p.peek().is("WHERE", "ORDER", "LIMIT"); {
		switch {
		case expectColumn:
			names := p.names()
			of := slices.IndexFunc(known, func(r reference) bool {
				return len(names) > 1 && strings.EqualFold(r.alias, names[len(names)-2]) || len(names) == 1 && len(known) == 1
			})
			if of < 0 || known[of].table == (tableName{}) || !p.peek().is("=") {
				return nil, errors.New("the statement sets a column whose table is not clear: with several tables, write the table's name or alias before each column")
			}
			written = append(written, known[of].table)
			expectColumn = false
		case p.peek().is("("):
			p.skipParentheses()
		default:
			expectColumn = p.peek().is(",")
			p.at++
		}
	}
	return written, nil
}

// reference is a table of an UPDATE and its alias, which is the table's name if there is none. A
// SELECT in parentheses has no name.
type reference struct {
	alias string
	table tableName
}

// references reads the tables of an UPDATE, and its SET.
func (p *sqlParser) references() (known []reference, err error) {
	for expectTable := true; p.at < len(p.tokens); {
		switch {
		case p.accept("SET"):
			return known, nil
		case expectTable:
			var r reference
			if p.peek().is("(") {
				if p.at++; !p.peek().is("SELECT") {
					return nil, errors.New("the statement has a join in parentheses")
				}
				p.at--
				p.skipParentheses()
			} else if r.table, err = p.table(); err != nil {
				return nil, err
			}
			p.accept("AS")
			r.alias = r.table.name
			if a := p.peek(); a.word && !a.is("SET", "JOIN", "INNER", "LEFT", "RIGHT", "CROSS", "NATURAL", "STRAIGHT_JOIN", "ON", "USING", "FORCE", "USE", "IGNORE", "PARTITION") {
				r.alias = a.text
				p.at++
			}
			known = append(known, r)
			expectTable = false
		case p.peek().is("("):
			p.skipParentheses()
		default:
			expectTable = p.peek().is(",", "JOIN", "STRAIGHT_JOIN")
			p.at++
		}
	}
	return nil, errors.New("the UPDATE has no SET")
}
