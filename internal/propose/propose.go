package propose

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

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
	Created, Due                       string // columns; Due may be none
	Delay                              time.Duration
	Kafka                              bool // write buckets
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
	created, due, shut timeChoice // without a column: none
	delay              time.Duration
	where, set         []condition // set: what a close writes beside the status
	category, lock     *column
	items              *linesChoice
	stock              []stockChoice
	why                map[string]string // the evidence for each part
}

// condition is a value that a column has.
type condition struct {
	*column
	value string
	null  bool // the value is NULL
	why   string
}

func (c condition) String() string {
	switch {
	case c.null:
		return "null"
	case isInteger(c.column):
		return c.value
	}
	return fmt.Sprintf("%q", c.value)
}

// in says that a row meets the condition.
func (c condition) in(row int) bool {
	v := c.rows[row]
	return c.null && v == nil || !c.null && text(v) == c.value
}

// unpaid says that a row is an order that a close may close.
func (p *Proposal) unpaid(row int) bool {
	return !slices.ContainsFunc(p.conditions(), func(c condition) bool { return !c.in(row) })
}

func (p *Proposal) conditions() []condition { return append([]condition{p.from}, p.where...) }

// Propose proposes a mapping. It is pure.
func (f *Facts) Propose(a Answers) *Proposal {
	p := &Proposal{f: f, a: a, why: map[string]string{}, delay: a.Delay}
	for _, choose := range []func(){p.chooseTable, p.chooseLines, p.chooseID, p.chooseCreated, p.chooseStatus, p.chooseOthers, p.chooseDue, p.chooseStock} {
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

func (p *Proposal) ask(q Question) { p.Questions = append(p.Questions, q) }

func (p *Proposal) doubt(format string, args ...any) {
	p.Doubts = append(p.Doubts, fmt.Sprintf(format, args...))
}

func (p *Proposal) refuse(format string, args ...any) { p.Refused = fmt.Sprintf(format, args...) }

func (p *Proposal) chooseTable() {
	all := p.f.candidates(p.a.Table)
	switch named := p.a.Table; {
	case p.f.All == 0:
		p.refuse("the database has no tables that this user sees in its schema: is it the shop's? docs/sweeper.md has a table to try orderclose with")
	case named != "" && len(all) == 0:
		p.refuse("there is no table %q of %d, or this user may not read it", named, p.f.All)
	case len(all) == 0:
		why := ""
		for _, t := range p.f.Tables {
			if c := p.f.weigh(t); c.against != "" && isOrders(t.Name) {
				why += fmt.Sprintf("; %s: %s", t.Name, c.against)
			}
		}
		p.refuse("no table of %d looks like one of orders: it needs a status and a time of creation. Name it: --table%s", p.f.All, why)
	case all[0].against != "" && (named == "" || !all[0].byName):
		p.refuse("table %s cannot be closed: %s", all[0].Name, all[0].against)
	case named == "" && (all[0].score < enough || len(all) > 1 && all[0].score < all[1].score+ahead && (all[0].rows == 0 || all[1].rows > 0 || !all[1].read)):
		q := Question{Flag: "table", Text: "which table has the orders?"}
		for _, c := range all {
			q.Choices, q.Numbers = append(q.Choices, c.Name), append(q.Numbers, c.Name+": "+c.evidence())
		}
		p.ask(q)
	default:
		if p.table, p.why["table"] = all[0].Table, all[0].evidence(); all[0].against != "" {
			p.doubt("table %s: %s", p.table.Name, all[0].against)
		}
	}
}

// evidence is why a table may be that of the orders, and how many rows it has.
func (c candidate) evidence() string {
	size := "not read"
	if c.all {
		size = fmt.Sprintf("%d rows", c.rows)
	} else if c.read {
		size = fmt.Sprintf("more than %d rows", c.rows)
	}
	return strings.Join(c.reasons, ", ") + "; " + size
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
		p.refuse("%s.%s is %s. For a UUID in a BINARY(16) write type: uuid_binary or uuid_binary_swapped by hand; else docs/mapping.md, "+
			"Ids that are binary", p.table.Name, p.id.Name, p.id.Definition)
	}
}

// chooseOthers chooses what is no necessary part: soft deletes, the time of the close, the category and the version.
func (p *Proposal) chooseOthers() {
	t := p.table
	for _, c := range t.ranked("deleted") {
		marked, n := c.share(p.unpaid)
		if n > 0 && marked > 0.5 { // then it marks what is there
			p.doubt("%s is set in %.0f of %d unpaid orders, so it is not taken for a mark of deleted ones", c.Name, marked*float64(n), n)
			continue
		}
		nulls := slices.ContainsFunc(c.rows, func(v any) bool { return v == nil })
		if nulls && !isTime(c) && slices.ContainsFunc(c.rows, func(v any) bool { return v != nil && !holds(v) }) {
			p.doubt("%s is NULL in some orders and 0 in others, so deleted ones are not excluded", c.Name)
			continue
		}
		unset := condition{column: c, value: "0", why: fmt.Sprintf("%.0f of %d unpaid orders are deleted, and stay as they are", marked*float64(n), n)}
		switch zero := slices.IndexFunc(c.rows, func(v any) bool { return v != nil && !holds(v) }); {
		case c.Type == "boolean":
			unset.value = "false"
		case isText(c) && zero >= 0:
			unset.value = text(c.rows[zero])
		case c.Nullable && zero < 0 && !isText(c) && (len(c.rows) > 0 || !isInteger(c)):
			unset.null = true
		case !isInteger(c):
			continue
		}
		p.where = append(p.where, unset)
		break
	}
	for _, c := range t.ranked("closedat") {
		at, ok := p.timeIn(c)
		early, _ := c.share(p.unpaid)
		if ok && at.zoned() && !c.OnUpdate && !c.DefaultNow && (c.Nullable || c.Default) && early < 0.01 {
			p.shut, p.shut.why = at, "set in no unpaid order"
			break
		}
	}
	for _, c := range t.ranked("category") {
		counts, _, _ := c.count(p.unpaid)
		if len(counts) > 1 && len(counts) <= 20 {
			var list []string
			for v, n := range counts {
				list = append(list, fmt.Sprintf("%s (%d)", v, n))
			}
			slices.Sort(list)
			p.category, p.why["category"] = c, "its values: "+strings.Join(list, ", ")+". delays.categories gives each a delay of its own"
			break
		}
	}
	p.lock = t.first("version")
	for _, c := range t.ranked("method") {
		p.payLater(c)
	}
	var marks []string
	for _, c := range slices.DeleteFunc(slices.Clone(t.columns), func(c *column) bool { return !isMark(c) }) {
		counts, _, _ := c.count(p.unpaid)
		if set, no := counts["1"]+counts["true"], counts["0"]+counts["false"]; set > 0 && no > 0 {
			marks = append(marks, fmt.Sprintf("%s (%d yes, %d no)", c.Name, set, no))
		}
	}
	if len(marks) > 0 {
		p.doubt("unpaid orders differ in %s: if some of them must stay open, exclude them by where", strings.Join(marks, ", "))
	}
}

// later matches ways to pay that take days.
var later = regexp.MustCompile(lists["later"][0])

// payLater excludes unpaid orders that are paid at the door or by transfer, if all others are paid in one way. Else it warns.
func (p *Proposal) payLater(c *column) {
	n, kinds, others := 0, "", []string{}
	counts, _, _ := c.count(p.unpaid)
	for _, v := range slices.Sorted(maps.Keys(counts)) {
		if label := cmp.Or(c.labels[v], v); later.MatchString(compress(label)) {
			n, kinds = n+counts[v], kinds+" "+label
		} else if v != "" {
			others = append(others, v)
		}
	}
	switch {
	case n > 0 && len(others) == 1 && counts[""] == 0:
		why := fmt.Sprintf("%d unpaid orders have%s, which is paid later, and stay open", n, kinds)
		p.where = append(p.where, condition{column: c, value: others[0], why: why})
	case n > 0:
		p.doubt("%d unpaid orders have the %s%s: if they are paid at the door or by transfer, a close is too early. One value can be excluded by where; "+
			"for several add a generated column", n, c.Name, kinds)
	}
}
