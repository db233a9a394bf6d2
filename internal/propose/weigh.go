package propose

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/orderclose/orderclose/internal/store/mapping"
)

// candidate is a table that may be that of the orders.
type candidate struct {
	*Table
	score   int
	reasons []string
	against string // why it is certainly no table of orders; "": nothing is
}

var digits = regexp.MustCompile(`(^|\D)20\d\d`)

// Weights of what makes a table that of the orders. They were chosen so that no single one decides.
const (
	enough = 8 // what a table needs
	ahead  = 3 // how far it must be ahead of the next one
)

// candidates returns the tables that may be that of the orders, the best first; at most three.
func (f *Facts) candidates(named string) (all []candidate) {
	for _, t := range f.Tables {
		if named != "" && !strings.EqualFold(t.Name, named) && t.Pattern != named {
			continue
		}
		if c := f.weigh(t); named != "" || c.score >= enough-2 && c.against == "" && (isOrders(t.Name) || !slices.ContainsFunc(f.Tables, func(t *Table) bool {
			return isOrders(t.Name)
		})) {
			all = append(all, c)
		}
	}
	slices.SortStableFunc(all, func(a, b candidate) int { return b.score - a.score })
	return all[:min(len(all), 3)]
}

// isOrders says that a name has to do with orders.
func isOrders(name string) bool {
	last := strings.TrimSuffix(compress(name), "s")
	return has(tokens(name), "orderWords") || strings.HasSuffix(last, "order") || strings.HasSuffix(last, "dingdan")
}

// weigh weighs a table by its name, its columns and the tables that refer to it.
func (f *Facts) weigh(t *Table) candidate {
	c := candidate{Table: t}
	add := func(n int, reason string) {
		if c.score += n; reason != "" {
			c.reasons = append(c.reasons, reason)
		}
	}
	of := tokens(months.ReplaceAllString(t.Name, "$1"))
	rest := slices.DeleteFunc(slices.Clone(of), func(w string) bool {
		return slices.Contains(lists["orderWords"], w) || slices.Contains(lists["plainWords"], w)
	})
	joined := compress(months.ReplaceAllString(t.Name, "$1"))
	switch named := isOrders(joined) || has(of, "orderWords"); {
	case t.View:
		c.against = "it is a view: a close needs the table below it"
	case t.unread != "":
		c.against = t.unread
	case f.parts[strings.TrimRight(t.Name, "0123456789")] > 1:
		c.against = "the orders are spread over several tables by a number. Only tables by month are read as one (docs/mapping.md, Shards)"
	case t.Pattern == "" && digits.MatchString(t.Name):
		c.against = "its name has a date: it looks like a copy or an archive"
	case has(of, "otherWords"):
		c.against = "its name says that it holds something else"
	case named && len(rest) == 0:
		add(6, "its name")
	case named:
		add(4, "its name")
	}
	if has(of, "softWords") {
		add(-2, "")
	}
	if s := t.ranked("status", isStatus); len(s) > 0 {
		add(2, "the column "+t.real(s[0]))
	} else if p := t.ranked("pay", isStatus); len(p) > 0 {
		add(1, "the column "+t.real(p[0]))
	} else if c.against == "" {
		c.against = "it has no status: a column of numbers or text"
	}
	if created := t.first("created", isTime); created != "" {
		add(1, "the column "+t.real(created))
	} else if len(t.ranked("due", isTime)) == 0 && c.against == "" {
		c.against = "it has no time of creation: a DATETIME, a TIMESTAMP or unix time"
	}
	for role, is := range map[string]func(mapping.Column) bool{"money": isAny, "buyer": isAny, "number": isKey, "paidat": isTime} {
		if len(t.ranked(role, is)) > 0 {
			add(1, "")
		}
	}
	if lines := f.lineTables(t); len(lines) > 0 {
		add(3, "lines in "+lines[0].Name)
	}
	slices.Sort(c.reasons)
	return c
}

// refersTo returns the columns of a table that hold the order of a row.
func (t *Table) refersTo(orders *Table) (all []string) {
	var names []string
	if isOrders(orders.Name) {
		names = lists["orderRefs"]
	}
	for _, w := range append(tokens(orders.Name), compress(orders.Name), strings.Join(tokens(orders.Name)[max(0, len(tokens(orders.Name))-2):], "")) {
		if one := strings.TrimSuffix(w, "s"); slices.Contains(lists["orderWords"], w) || len(w) > 4 && !slices.Contains(lists["plainWords"], w) {
			names = append(names, one+"id", one+"no", "id"+one, one, one+"code", one+"sn")
		}
	}
	for _, c := range t.columns {
		switch refers := t.Columns[c].RefersTo; {
		case !isKey(t.Columns[c]):
		case orders.is(refers):
			all = append([]string{c}, all...)
		case refers == "" && slices.Contains(names, compress(c)):
			all = append(all, c)
		}
	}
	return all
}

// lineTables returns the tables that may hold the lines of orders, the most likely first.
func (f *Facts) lineTables(orders *Table) (all []*Table) {
	score := map[*Table]int{}
	stem := strings.TrimSuffix(compress(orders.Name), "s")
	for _, t := range f.Tables {
		of := tokens(t.Name)
		if t == orders || t.View || has(of, "notLines") || !has(of, "lineWords") && !strings.HasPrefix(compress(t.Name), stem) ||
			len(t.ranked("sku", isKey)) == 0 || !f.refers(t, orders) || (t.Pattern != "") != (orders.Pattern != "") && t.Pattern != "" {
			continue
		}
		if score[t] = 10 - len(of); strings.HasPrefix(compress(t.Name), stem) {
			score[t] += 5
		}
		if len(t.ranked("quantity", isAny)) > 0 {
			score[t] += 5
		}
		all = append(all, t)
	}
	slices.SortStableFunc(all, func(a, b *Table) int { return score[b] - score[a] })
	return all
}

// refers says that a table refers to orders; the rows do not contradict it.
func (f *Facts) refers(t, orders *Table) bool {
	_, id := f.reference(t, orders)
	return id != ""
}

// sampled are the roles of the columns whose rows are read.
var sampled = []string{"status", "pay", "created", "due", "paidat", "closedat", "deleted", "category", "number", "method", "placed"}

// readOrders reads the rows of a table of orders, and what its lines and stock have in common with it.
func (f *Facts) readOrders(ctx context.Context, t *Table) error {
	if t.View {
		return nil
	}
	of := map[string]bool{}
	for _, role := range sampled {
		for _, c := range t.ranked(role, func(c mapping.Column) bool { return isKey(c) || isStatus(c) || isTime(c) }) {
			of[c] = true
		}
	}
	for _, c := range t.columns {
		if isMark(t.Columns[c]) {
			of[c] = true
		}
	}
	if key := t.key(); key != "" {
		of[key] = true
	}
	if len(of) == 0 {
		return nil
	}
	if err := f.sample(ctx, t, slices.Sorted(maps.Keys(of))); err != nil {
		return fmt.Errorf("table %s: %w", t.Name, err)
	}
	for _, l := range f.lineTables(t) {
		for _, ref := range l.refersTo(t) {
			for _, id := range t.ids() {
				f.readLink(ctx, l, ref, t, id)
			}
		}
		f.readStockLinks(ctx, l)
	}
	return f.readLookups(ctx, t)
}

// ids returns the columns that may be the id that records use: the key, and unique numbers.
func (t *Table) ids() (all []string) {
	if key := t.key(); key != "" {
		all = append(all, key)
	}
	for _, c := range t.ranked("number", isKey) {
		if _, ok := t.unique(c); ok && !slices.Contains(all, c) {
			all = append(all, c)
		}
	}
	return all
}

// chosen is the table of orders, or a Question which one it is, or the reason why there is none.
func (f *Facts) chosen(named string) (t *Table, why string, ask *Question, refuse string) {
	all := f.candidates(named)
	switch {
	case f.All == 0:
		return nil, "", nil, "the database has no tables. orderclose migrate creates some; README.md shows how to write orders into them"
	case named != "" && len(all) == 0:
		return nil, "", nil, fmt.Sprintf("there is no table %q of %d, or this user may not read it", named, f.All)
	case len(all) == 0:
		why := ""
		for _, t := range f.Tables {
			if c := f.weigh(t); c.against != "" && isOrders(t.Name) {
				why += fmt.Sprintf("; %s: %s", t.Name, c.against)
			}
		}
		return nil, "", nil, fmt.Sprintf("no table of %d looks like one of orders: it needs a status and a time of creation. Name it: --table%s", f.All, why)
	case all[0].against != "":
		return nil, "", nil, fmt.Sprintf("table %s cannot be closed: %s", all[0].Name, all[0].against)
	case named == "" && (all[0].score < enough || len(all) > 1 && all[0].score < all[1].score+ahead && !f.emptier(all[1].Table, all[0].Table)):
		q := &Question{Flag: "table", Text: "which table has the orders?"}
		for _, c := range all {
			q.Choices = append(q.Choices, c.Name)
			q.Numbers = append(q.Numbers, fmt.Sprintf("%s: %s; %s", c.Name, strings.Join(c.reasons, ", "), c.size()))
		}
		return nil, "", q, ""
	}
	return all[0].Table, strings.Join(all[0].reasons, ", ") + "; " + all[0].size(), nil, ""
}

// emptier says that a table has no rows, and another one has some.
func (f *Facts) emptier(a, b *Table) bool {
	return a.rows != nil && b.rows != nil && len(a.rows.values) == 0 && len(b.rows.values) > 0
}

// size says how many rows a table has.
func (t *Table) size() string {
	switch {
	case t.rows == nil:
		return "not read"
	case t.rows.all:
		return fmt.Sprintf("%d rows", len(t.rows.values))
	}
	return fmt.Sprintf("more than %d rows", len(t.rows.values))
}

// Question is what the database does not tell.
type Question struct {
	Flag    string   `json:"flag"` // that answers it
	Text    string   `json:"text"`
	Numbers []string `json:"numbers,omitempty"` // what the tables say about it
	Choices []string `json:"choices,omitempty"`
}

// Answers are what the user knows. An empty field is not answered.
type Answers struct {
	Table, Unpaid, Closed, Zone, Stock string
	Delay                              time.Duration
	Kafka                              bool // write buckets
}

// Proposal is a section orders, with what is not known.
type Proposal struct {
	Refused   string     `json:"refused,omitempty"` // why no mapping is possible, and what to do; then there is nothing else
	Questions []Question `json:"questions,omitempty"`
	Doubts    []string   `json:"doubts,omitempty"` // what to look at, the most important first
	YAML      string     `json:"yaml,omitempty"`   // "": there are questions

	now     time.Time
	table   *Table
	pattern string
	id      choice
	idType  mapping.KeyType
	status  statusChoice
	created timeChoice
	due     timeChoice // without a column: by rule
	closed  timeChoice
	delay   time.Duration
	why     map[string]string // the evidence for each part
	where   []condition
	set     []condition       // what a close writes beside the status
	columns map[string]string // category and version, by key
	items   *linesChoice
	stock   []stockChoice
}

// choice is a column and the evidence for it.
type choice struct{ column, index string }

// condition is a value that a column of unpaid orders must have.
type condition struct{ column, value, why string }

// Propose proposes a mapping. It is pure.
func (f *Facts) Propose(a Answers) *Proposal {
	p := &Proposal{now: f.Now, why: map[string]string{}, columns: map[string]string{}, delay: a.Delay}
	t, why, ask, refuse := f.chosen(a.Table)
	if p.Refused = refuse; refuse != "" {
		return p
	}
	if ask != nil {
		p.Questions = append(p.Questions, *ask)
		return p
	}
	p.table, p.pattern, p.why["table"] = t, cmp.Or(t.Pattern, t.Name), why
	for _, choose := range []func(*Facts, Answers){p.chooseLines, p.chooseID, p.chooseCreated, p.chooseStatus, p.chooseOthers, p.chooseDue, p.chooseStock} {
		if choose(f, a); p.Refused != "" {
			return &Proposal{Refused: p.Refused}
		}
	}
	if len(p.Questions) == 0 {
		p.YAML = p.write(a)
	}
	return p
}

func (p *Proposal) ask(q Question) { p.Questions = append(p.Questions, q) }

func (p *Proposal) doubt(format string, args ...any) {
	p.Doubts = append(p.Doubts, fmt.Sprintf(format, args...))
}

// chooseID chooses the id: the column to which lines refer.
func (p *Proposal) chooseID(f *Facts, _ Answers) {
	t := p.table
	ids := t.ids()
	if len(ids) == 0 {
		p.Refused = fmt.Sprintf("table %s has no key of one column. Add a unique column, such as an order number, and write the mapping by docs/mapping.md", t.Name)
		return
	}
	column := ids[0]
	p.why["id"] = "the key"
	if p.items != nil {
		column, p.why["id"] = p.items.id, fmt.Sprintf("%s.%s holds it", p.items.table.Name, p.items.table.real(p.items.order))
	}
	c := t.Columns[column]
	switch {
	case isInteger(c):
		p.idType = mapping.Integer
	case c.Type == "uuid":
		p.idType = mapping.UUID
	case isText(c):
		p.idType = mapping.Text
	default:
		p.Refused = fmt.Sprintf("%s.%s is %s. For a UUID in a BINARY(16) write type: uuid_binary or uuid_binary_swapped by hand; else docs/mapping.md, "+
			"Ids that are binary", t.Name, column, c.Definition)
	}
	index, _ := t.unique(column)
	p.id = choice{column, index}
}
