package propose

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/orderclose/orderclose/internal/store/mapping"
)

// Question is what the database does not tell.
type Question struct {
	Flag    string   `json:"flag"`          // that answers it
	Key     string   `json:"key,omitempty"` // what the answer of the flag begins with
	Text    string   `json:"text"`
	Choices string   `json:"choices,omitempty"` // what follows from each answer
	Numbers []string `json:"numbers,omitempty"` // what the tables say about it
}

// Answers are what the user knows. An empty field is not answered.
type Answers struct {
	Table, Unpaid, Closed, Zone, Stock string
	Created, Due                       string // columns; Due may be none
	Delay                              time.Duration
	Kafka                              bool     // write buckets
	Keep                               []string // which unpaid orders stay open: COLUMN=VALUES, unknown or none

	mapped *mapping.Mapping // what it excludes stays open too; nil: there is none yet
}

// Proposal is a section orders, with what is not known.
type Proposal struct {
	Refused   string     `json:"refused,omitempty"` // why no mapping is possible, and what to do; then there is nothing else
	Questions []Question `json:"questions,omitempty"`
	Doubts    []string   `json:"doubts,omitempty"` // what to look at, the most important first
	YAML      string     `json:"yaml,omitempty"`   // "": there are questions

	f                  *Facts
	a                  Answers
	table              *Table
	id                 *column
	from, to           condition // of the status
	paid, closed       []string
	isPaid             func(row int) bool
	zone               string     // of DATETIME columns; "": not known
	created, due, shut timeChoice // without a column: none
	delay              time.Duration
	where              []filter
	set                []condition // what a close writes beside the status
	notBefore          time.Time   // the zero time: any order may close
	accept             []string    // names of what the answers accept
	lock               *column
	items              *linesChoice
	stock              []stockChoice
	why                map[string]string // the evidence for each part
}

// condition is a value that a column has.
type condition struct {
	*column
	value string
	also  []string // further values; only of the status of unpaid orders
	null  bool     // the value is NULL
	why   string
}

func (c condition) String() string {
	switch {
	case c.null:
		return "null"
	case len(c.also) > 0:
		return filter{column: c.column, values: append([]string{c.value}, c.also...)}.String()
	}
	return c.column.written(c.value)
}

// written writes a value for topics.yaml.
func (c *column) written(value string) string {
	if isInteger(c) || c.Type == "decimal" || isBit(c) {
		return value
	}
	return fmt.Sprintf("%q", value)
}

// unpaid says that a row is an order that a close may close.
func (p *Proposal) unpaid(row int) bool {
	return p.from.column != nil && p.from.in(row) && !slices.ContainsFunc(p.where, func(f filter) bool { return !f.accepts(f.rows[row]) })
}

// in says that a row meets the condition.
func (c condition) in(row int) bool {
	value := text(c.rows[row])
	return value == c.value || slices.Contains(c.also, value)
}

// Propose proposes a mapping. It is pure.
func (f *Facts) Propose(a Answers) *Proposal {
	p := &Proposal{f: f, a: a, why: map[string]string{}, delay: a.Delay}
	for _, choose := range []func(){p.chooseTable, p.chooseLines, p.chooseID, p.chooseCreated, p.chooseStatus, p.chooseOthers, p.chooseDue,
		p.chooseExceptions, p.chooseStock} {
		if choose(); p.Refused != "" {
			return &Proposal{Refused: p.Refused}
		} else if p.table == nil {
			return p
		}
	}
	if len(p.Questions) == 0 {
		p.YAML = p.write()
	}
	return p
}

func (p *Proposal) ask(q Question) {
	if !slices.ContainsFunc(p.Questions, func(other Question) bool { return other.Flag == q.Flag && other.Key == q.Key }) {
		p.Questions = append(p.Questions, q)
	}
}

func (p *Proposal) doubt(format string, args ...any) {
	p.Doubts = append(p.Doubts, fmt.Sprintf(format, args...))
}

func (p *Proposal) refuse(format string, args ...any) { p.Refused = fmt.Sprintf(format, args...) }

func (p *Proposal) chooseTable() {
	all := p.f.candidates(p.a.Table)
	switch named := p.a.Table; {
	case p.f.All == 0:
		p.refuse("the database has no tables that this user sees in its schema: is it the shop's? docs/sweeper.md has a table to try orderclose with%s",
			p.f.elsewhere)
	case named != "" && len(all) == 0:
		p.refuse("there is no table %q of %d, or this user may not read it%s", named, p.f.All, p.f.elsewhere)
	case len(all) == 0:
		why := ""
		for _, t := range p.f.Tables {
			if c := p.f.weigh(t); c.against != "" && isOrders(t.Name) {
				why += fmt.Sprintf("; %s: %s", t.Name, c.against)
			}
		}
		p.refuse("no table of %d is taken for that of the orders, which needs a status and a time of creation. Name it: --table%s%s", p.f.All, why, p.f.elsewhere)
	case all[0].against != "" && !all[0].byName:
		p.refuse("table %s cannot be closed: %s", all[0].Name, all[0].against)
	case !slices.ContainsFunc(all[0].ids(), func(c *column) bool { return c.keyType() != "" }):
		p.table = all[0].Table
		p.chooseID()
	case named == "" && (all[0].score < enough || len(all) > 1 && all[0].score < all[1].score+ahead && (all[0].rows == 0 || all[1].rows > 0 || !all[1].read)):
		q := Question{Flag: "table", Text: "which table has the orders?"}
		for _, c := range all {
			q.Numbers = append(q.Numbers, c.Name+": "+c.evidence)
		}
		p.ask(q)
	default:
		if p.table, p.why["table"] = all[0].Table, all[0].evidence; all[0].against != "" {
			p.doubt("table %s: %s", p.table.Name, all[0].against)
		}
	}
}

// chooseID chooses the id: the column to which lines refer.
func (p *Proposal) chooseID() {
	ids := p.table.ids()
	if len(ids) == 0 {
		p.refuse("table %s has no key of one column. Add a unique column, such as an order number, and write the mapping by docs/mapping.md", p.table.Name)
		return
	}
	p.id, p.why["id"] = ids[0], "the key"
	if p.items != nil {
		p.id, p.why["id"] = p.items.id, fmt.Sprintf("%s.%s holds it", p.items.table.Name, p.items.order.Name)
	}
	if p.id.keyType() == "" {
		p.refuse("%s.%s is %s. Make a varchar of a character(n). For a UUID in a BINARY(16) write type: uuid_binary or uuid_binary_swapped by hand; "+
			"else docs/mapping.md, Ids that are binary; or name another table: --table", p.table.Name, p.id.Name, p.id.Definition)
	}
}

// chooseOthers chooses what is no necessary part: soft deletes, the time of the close and the version.
func (p *Proposal) chooseOthers() {
	t := p.table
	if c := t.first("deleted"); c != nil {
		marked, n := c.share(p.unpaid)
		unset, ok := c.unset()
		all, _ := c.share(anyRow)
		switch _, answered := p.kept(c.Name); {
		case answered:
		case ok && all <= 0.5: // of all orders, as deleted ones may be most of what is open now; else it may mark what is there
			unset.why = fmt.Sprintf("%.0f of %d unpaid orders are deleted, and stay as they are", marked*float64(n), n)
			p.where = append(p.where, unset)
		case marked > 0:
			p.askKeep(c, "a customer may have deleted %s")
		}
	}
	for _, c := range t.ranked("closedat") {
		at, ok := p.timeIn(c)
		early, _ := c.share(p.unpaid)
		if ok && at.zoned() && !c.OnUpdate && !c.DefaultNow && (c.Nullable || c.Default) && early < 0.01 {
			p.shut, p.shut.why = at, "set in no unpaid order"
			break
		}
	}
	p.lock = t.first("version")
}

type linesChoice struct {
	table                    *Table
	order, id, sku, quantity *column // id: the column of orders that order holds
	why                      string
}

// stockChoice is a table that may have the stock.
type stockChoice struct {
	table               *Table
	key, line           *column // line: the column of lines with the key
	available, reserved *column
	why                 string
	points              int
}

// chooseLines chooses the table of lines, and which column of orders they refer to.
func (p *Proposal) chooseLines() {
	for _, t := range p.f.lineTables(p.table) {
		if quantity := t.first("quantity"); quantity != nil && isWhole(quantity) {
			order, id := p.f.reference(t, p.table)
			p.items = &linesChoice{table: t, order: order, id: id, quantity: quantity, sku: t.first("sku"), why: "its name"}
			if l := p.f.links[[2]*column{order, id}]; l.of > 0 {
				p.items.why = fmt.Sprintf("%d of its %d newest orders are in %s", l.found, l.of, p.table.Name)
			}
			return
		}
	}
	p.doubt("no table of lines with a SKU and whole quantities was found, or this user may not read it: a close returns no stock. If unpaid orders hold some, " +
		"map items and stock, or return it by on_close or by a reader of the events (docs/mapping.md)")
}

// stockTables returns the tables that may have the stock: each with its keys, and the columns of lines that may hold them.
func (f *Facts) stockTables(lines *Table) (all []stockChoice) {
	for _, t := range f.Tables {
		of := tokens(t.Name)
		if t == lines || t.View || t.Pattern != "" || !has(of, "stockWords") || has(of, "notStock") {
			continue
		}
		s := stockChoice{table: t, available: t.first("available"), reserved: t.first("reserved")}
		if s.available == s.reserved {
			s.available = nil
		}
		if s.available == nil && s.reserved == nil {
			continue
		}
		own := t.key() // a row of stock may have a number of its own, beside its SKU
		for _, key := range append(slices.DeleteFunc(t.ranked("sku"), func(c *column) bool { return c == own }), own) {
			if key == nil || len(key.uniques()) == 0 {
				continue
			}
			for rank, sku := range lines.ranked("sku") {
				other := slices.ContainsFunc(t.columns, func(c *column) bool { return c != key && key == own && compress(c.key) == compress(sku.key) })
				if s.key, s.line, s.points = key, sku, 20-2*rank; s.named() && comparable(sku, key) && (!other || sku.refersTo(t)) {
					all = append(all, s)
				}
			}
		}
	}
	return all
}

// named says that by its name or a foreign key the column of lines holds the key of the stock.
func (s stockChoice) named() bool {
	if s.line.RefersTo != "" {
		return s.line.refersTo(s.table)
	}
	c := compress(s.line.key)
	stem := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(c, "id"), "code"), "no")
	return strings.HasSuffix(compress(s.key.key), c) && s.key.key != "id" ||
		len(stem) > 1 && strings.Contains(compress(s.table.Name), stem) || // sku_id, and the table t_goods_sku
		slices.ContainsFunc(tokens(s.line.key), func(w string) bool { return len(w) > 2 && slices.Contains(tokens(s.table.Name), w) })
}

// takes says that a trigger takes the pieces of a new line from the stock.
func (f *Facts) takes(lines *Table, s stockChoice) bool {
	code := f.inserts[lines.Name]
	return s.available != nil && strings.Contains(code, strings.ToLower(s.table.Name)) &&
		regexp.MustCompile(`\b`+regexp.QuoteMeta(s.available.key)+`\W+-`).MatchString(code)
}

// chooseStock chooses the tables to which a close returns the pieces. The first one has the SKUs.
func (p *Proposal) chooseStock() {
	if p.items == nil {
		if p.a.Stock != "" && p.a.Stock != "paid" {
			p.refuse("--stock %s: no table of lines was found, so a close cannot return stock. Map items and stock by docs/mapping.md", p.a.Stock)
		}
		return
	}
	lines := p.items.table
	if c := lines.first("deleted"); c != nil {
		p.doubt("%s has %s: if lines that are deleted hold no stock, exclude them by items.where", lines.Name, c.Name)
	}
	var all []stockChoice
	for _, s := range p.f.stockTables(lines) {
		l := p.f.links[[2]*column{s.line, s.key}]
		if !l.sure() && l.of > 0 || slices.ContainsFunc(all, func(other stockChoice) bool { return other.table == s.table }) {
			continue
		}
		if s.reserved != nil {
			s.points += 8
		}
		if has(tokens(s.table.Name), "skuWords") {
			s.points += 5
		}
		s.why = fmt.Sprintf("%d of the %d newest in %s.%s are in it", l.found, l.of, lines.Name, s.line.Name)
		all = append(all, s)
	}
	if len(all) == 0 {
		p.why["stock"] = "no table with the stock was found; the event of a close lists what to release"
		p.doubt("no table with the stock of %s was found: a close returns none, and its event lists what to release. If a table has it, map it as "+
			"stock (docs/mapping.md)", p.items.sku.Name)
		return
	}
	slices.SortStableFunc(all, func(a, b stockChoice) int { return b.points - a.points })
	first := all[0]
	p.items.sku = first.line
	both := slices.ContainsFunc(all[1:], func(s stockChoice) bool { return s.reserved != nil && first.reserved != nil })
	if !both { // the key of one table
		all = slices.DeleteFunc(all, func(s stockChoice) bool { return s.table != first.table && s.line == first.line })
	}
	open, n := p.table.logged.share(p.unpaid)
	done, new := p.table.logged.share(func(row int) bool { return p.isPaid(row) && p.f.Now.Sub(p.created.at[row]) < 24*time.Hour }) // not shipped yet
	two := first.reserved != nil && first.available != nil && !slices.ContainsFunc(lists["freeWords"], func(w string) bool {
		return strings.Contains(compress(first.available.key), w)
	})
	switch answered := p.a.Stock != ""; {
	case two && !both && !answered:
		p.ask(Question{Flag: "stock", Text: fmt.Sprintf("when an order is placed, does the shop take its pieces from %[1]s.%[2]s and add them to "+
			"%[3]s, or only add them to %[3]s? A close does the opposite. placed: both columns; reserved: only %[3]s; paid: none",
			first.table.Name, first.available.Name, first.reserved.Name)})
		return
	case first.reserved != nil && !both && p.a.Stock == "reserved":
		all, p.a.Stock = all[:1], "placed"
		all[0].available = nil
	case first.reserved != nil && !both && (!answered || p.a.Stock == "placed"):
		all, p.a.Stock = all[:1], "placed"
	case answered:
	case !slices.ContainsFunc(all, func(s stockChoice) bool { return !p.f.takes(lines, s) }):
		p.a.Stock = "placed"
	case n >= 10 && new >= 10 && open < 0.05 && done > 0.95 && first.reserved == nil:
		p.a.Stock = "paid"
	}
	var evidence []string
	for _, s := range all {
		evidence = append(evidence, s.table.Name+": its "+cmp.Or(s.available, s.reserved).Name+"; "+s.why)
	}
	switch wanted := strings.Split(p.a.Stock, ","); p.a.Stock {
	case "":
		p.ask(Question{Flag: "stock", Text: "which of these falls when an order is placed, and not when it is paid? placed (all of them), paid (none of them), " +
			"or names of tables", Numbers: evidence})
	case "placed":
		p.stock = all
	case "paid":
		p.why["stock"] = "an unpaid order holds none"
	default:
		if p.stock = slices.DeleteFunc(all, func(s stockChoice) bool { return !slices.Contains(wanted, s.table.Name) }); len(p.stock) != len(wanted) {
			p.refuse("--stock %s: write placed, paid, or tables of these: %s", p.a.Stock, strings.Join(evidence, ", "))
			return
		}
		p.items.sku = p.stock[0].line
	}
}
