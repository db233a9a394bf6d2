package propose

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/store/mapping"
)

// timeChoice is a column with times, how to read it, and the evidence.
type timeChoice struct {
	mapping.TimeColumn
	of  *column
	why string
	at  []time.Time // of the rows read; the zero time: none
}

// zoned says that the times are points in time: a DATETIME needs a zone.
func (t *timeChoice) zoned() bool { return t.Type != mapping.DateTime || t.Zone != "" }

// timeIn reads a column as times, in the zone of the creation time; false: it holds none.
func (p *Proposal) timeIn(c *column) (t timeChoice, ok bool) {
	t = timeChoice{TimeColumn: mapping.TimeColumn{Column: c.Name, Type: mapping.TimeType(c.Type)}, of: c, why: strings.ToUpper(c.Type)}
	if isInteger(c) {
		t.Type, ok = unit(c.rows)
	} else {
		t.Precision, ok = map[int]mapping.Precision{0: mapping.Seconds, 1: mapping.Millis, 2: mapping.Micros}[min((c.Digits+2)/3, 2)], true
	}
	if t.Type == mapping.DateTime {
		t.Zone = p.zone
	}
	t.decode()
	return t, ok
}

// unit returns the unit of unix times; false: they are none.
func unit(values []any) (mapping.TimeType, bool) {
	n, of := 0, map[mapping.TimeType]int{}
	for _, v := range values {
		switch x := number(v); {
		case x == 0:
			continue
		case x > 9e8 && x < 5e9:
			of[mapping.UnixSeconds]++
		case x > 9e11 && x < 5e12:
			of[mapping.UnixMillis]++
		}
		n++
	}
	for unit, found := range of {
		if found*100 >= n*98 {
			return unit, true
		}
	}
	return mapping.UnixSeconds, len(values) == 0
}

func (t *timeChoice) decode() {
	known := t.TimeColumn
	if !t.zoned() {
		known.Zone = "UTC" // not known yet: ages are wrong by some hours
	}
	codec, _ := known.Codec()
	t.at = make([]time.Time, len(t.of.rows))
	for row, v := range t.of.rows {
		if s, is := v.(string); is {
			v = []byte(s)
		}
		if at, ok, err := codec.Decode(v); ok && err == nil {
			t.at[row] = at
		}
	}
}

// chooseCreated chooses the time of creation, and the zone of all times of the table.
func (p *Proposal) chooseCreated() {
	p.zone = p.a.Zone
	for _, c := range p.table.ranked("created") {
		created, ok := p.timeIn(c)
		if part, n := c.share(anyRow); !ok || n > 0 && part < 0.9 {
			continue
		}
		if len(c.rows) == 0 && isInteger(c) {
			p.doubt("%s has no rows: that %s holds seconds is not known, compare it with the first row", p.table.Name, c.Name)
		} else if isInteger(c) {
			created.why += ", " + string(created.Type) + " by its values"
		}
		p.created = created
		if why := p.chooseZone(); created.Type == mapping.DateTime {
			p.created, _ = p.timeIn(c)
			p.created.why += why
		}
		if at := append(p.created.at, make([]time.Time, 3)...)[2]; p.created.zoned() && at.After(p.f.Now.Add(10*time.Minute)) {
			p.doubt("%s has times in the future, such as %s: the shop writes in another time zone than %s, and orders would close late, or it is no time of creation",
				c.Name, at.Format(time.RFC3339), cmp.Or(p.created.Zone, string(created.Type)))
		}
		return
	}
	p.refuse("table %s has no time of creation that can be read: its columns are text, dates, or in no known unit. "+
		"Add a column of type DATETIME, and map it by docs/mapping.md", p.table.Name)
}

// utc returns a DATETIME as if it were in UTC.
func utc(v any) time.Time {
	at, _ := v.(time.Time)
	return time.Date(at.Year(), at.Month(), at.Day(), at.Hour(), at.Minute(), at.Second(), 0, time.UTC)
}

// likeCreated says that a column has times of the same zone as the creation: some are nearly the same.
func (p *Proposal) likeCreated(c *column) bool {
	for row, v := range p.created.of.rows {
		if v != nil && utc(c.rows[row]).Sub(utc(v)).Abs() < 10*time.Minute {
			return true
		}
	}
	return false
}

// chooseZone compares the newest rows with the database's clock, and returns how the zone is known: the newest row would be some minutes old in it.
// It asks only if the creation needs a zone.
func (p *Proposal) chooseZone() string {
	needed, all := p.created.Type == mapping.DateTime, make([]time.Time, p.table.rows)
	for _, role := range words("created placed paidat changed closedat") {
		for _, c := range p.table.ranked(role) {
			if c.Type != "datetime" || needed && !p.likeCreated(c) {
				continue
			}
			for row, v := range c.rows {
				if at := utc(v); at.After(all[row]) && at.Before(p.f.Now.Add(15*time.Hour)) {
					all[row] = at
				}
			}
		}
	}
	slices.SortFunc(all, func(a, b time.Time) int { return b.Compare(a) })
	at := append(all, time.Time{}, time.Time{})[min(1, max(len(all)-1, 0))] // a wrong clock may have written one
	if p.zone != "" {
		loc, _ := mapping.ParseZone(p.zone)
		_, offset := p.f.Now.In(loc).Zone()
		if age := p.f.Now.Add(time.Duration(offset) * time.Second).Sub(at); needed && age > 20*time.Minute && !at.IsZero() {
			p.doubt("in the zone %s, the newest %s is %s old: a wrong zone closes orders early or late", p.zone, p.created.Column, short(age))
		}
		return ", in the zone of --zone"
	}
	ask := func(format string, args ...any) string {
		if needed {
			p.ask(Question{Flag: "zone", Text: fmt.Sprintf("in which time zone does the shop write %s.%s? UTC, an offset such as +08:00, or a name "+
				"such as Europe/Berlin", p.table.Name, p.created.Column), Numbers: []string{fmt.Sprintf(format, args...)}})
		}
		return ""
	}
	if at.IsZero() {
		return ask("the table has no rows to compare with the clock")
	}
	const india = 5*time.Hour + 30*time.Minute
	ahead := at.Sub(p.f.Now)
	offset := time.Duration(math.Ceil((ahead - time.Minute).Hours())) * time.Hour // the next whole hour
	if ahead-time.Minute <= india && offset > india {
		offset = india
	}
	jump := slices.ContainsFunc([]int{0, 1, 2, 3, 5, 9}, func(i int) bool { // a few rows ahead of all others
		return len(all) > 60 && all[i].Sub(all[i+1]) > 25*time.Minute && all[i+1].Sub(all[i+40]) < 40*time.Minute
	})
	age := offset - ahead
	switch zone := zoneName(offset); {
	case jump:
		return ask("its newest times, such as %s, are far ahead of all others: rows in another zone, or of a wrong clock", text(at))
	case age > 20*time.Minute || ahead < -12*time.Hour:
		return ask("its newest time is %s, and the database's clock is at %s in UTC: that is no recent row", text(at), text(p.f.Now))
	case offset != 0 && (offset < 4*time.Hour || offset > 9*time.Hour || offset == 5*time.Hour):
		return ask("UTC%s now, by its newest row; but zones with that offset may have summer time: name the place", zone)
	default:
		p.zone = zone
		p.doubt("by its newest rows, %s is written in %s: if it is not %s there now, or if the place has summer time, as London has, answer --zone",
			p.table.Name, zone, p.f.Now.Add(offset).Format("15:04"))
		return fmt.Sprintf(", %s by its newest rows (%s old)", zone, age.Round(time.Second))
	}
}

// zoneName writes an offset for topics.yaml.
func zoneName(offset time.Duration) string {
	if offset == 0 {
		return "UTC"
	}
	return time.Time{}.In(time.FixedZone("", int(offset.Seconds()))).Format("-07:00")
}

// delays are those that shops have, in minutes.
var delays = []time.Duration{1, 2, 3, 5, 10, 15, 20, 30, 45, 60, 90, 120, 180, 240, 360, 480, 720, 1440, 2880, 4320, 7200, 10_080, 14_400, 20_160, 43_200}

// after returns how long after its creation each of some orders has another time, sorted; in how many it is ahead, and how many never have it.
func (p *Proposal) after(of func(row int) bool, t timeChoice) (ages []time.Duration, ahead, never int) {
	for row, at := range t.at {
		created := p.created.at[row]
		switch {
		case !of(row) || created.IsZero():
			continue
		case at.IsZero() || orderclose.IsNever(at):
			never++
			continue
		case at.After(p.f.Now):
			ahead++
		}
		ages = append(ages, at.Sub(created))
	}
	slices.Sort(ages)
	return ages, ahead, never
}

// percentile returns 0 if there is no age.
func percentile(sorted []time.Duration, percent int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)*percent/100, len(sorted)-1)]
}

// chooseDue chooses a column of due times if the table has one, or else the delay after the creation.
func (p *Proposal) chooseDue() {
	known, maybe := p.table.ranked("due"), []string{}
	for _, c := range p.table.columns {
		due, ok := p.timeIn(c)
		ages, ahead, never := p.after(p.unpaid, due)
		n, named, answered := len(ages)+never, slices.Contains(known, c), strings.EqualFold(p.a.Due, c.Name)
		later, middle := len(ages)*5 >= n && percentile(ages, 5) > 0, percentile(ages, 50)
		says := fmt.Sprintf("%s after %s in the middle of %d unpaid orders", short(middle), p.created.Column, n)
		switch sure := named && later && len(ages)*5 >= n*4 && percentile(ages, 90) <= 60*24*time.Hour; {
		case !ok || c.OnUpdate || c.DefaultNow || c == p.created.of || !answered && (p.a.Due != "" || !later):
			continue
		case !answered && !sure:
			if named || ahead*3 > n && is(c, "datetime timestamp timestamptz") {
				maybe = append(maybe, c.Name+": "+says)
			}
			continue
		case !due.zoned():
			p.ask(Question{Flag: "zone", Text: fmt.Sprintf("in which time zone does the shop write %s.%s?", p.table.Name, c.Name)})
			return
		}
		if due.why += ", " + says; never > 0 {
			p.doubt("%d of %d unpaid orders have no %s, and never close", never, n, c.Name)
		}
		if middle >= 24*time.Hour {
			p.doubt("%s is %s after %s in the middle: if that is a delivery, a visit or an invoice, answer --due none", c.Name, short(middle), p.created.Column)
		}
		if p.due = due; p.delay == 0 {
			p.delay, p.why["delay"] = max(middle.Round(10*time.Second), time.Second), "as "+c.Name+" has it"
		}
		return
	}
	switch {
	case p.a.Due != "" && p.a.Due != "none":
		p.refuse("--due %s: %s has no such column with times", p.a.Due, p.table.Name)
		return
	case len(maybe) > 0 && p.a.Due == "":
		p.ask(Question{Flag: "due", Text: "is one of these the time until which an order may be paid? its name, or none", Numbers: maybe})
		return
	}
	for _, c := range p.table.ranked("placed") { // a cart may be made hours before it is an order
		at, ok := p.timeIn(c)
		late, _, never := p.after(p.unpaid, at)
		if ok && at.zoned() && len(late) > 0 && late[0] >= 0 && never*100 < len(late) && !c.OnUpdate && c != p.created.of {
			at.why += fmt.Sprintf(", set in all unpaid orders, and up to %s after %s", short(percentile(late, 100)), p.created.Column)
			p.created = at
			break
		}
	}
	if p.why["delay"] = "--delay"; p.delay == 0 {
		p.chooseDelay()
	}
}

// edge returns the delay after which orders were closed by time: many ended just then, few shortly before, and few later; and what says so. 0: there is
// none. known says that a column has the times at which they ended.
func (p *Proposal) edge(of func(row int) bool) (delay time.Duration, says string, known bool) {
	for _, c := range append(p.table.ranked("closedat"), p.table.ranked("changed")...) {
		at, ok := p.timeIn(c)
		ages, _, _ := p.after(of, at)
		if !ok || len(ages) < 20 {
			continue
		}
		known = true
		for _, d := range slices.Backward(delays) {
			d = d*time.Minute - 2*time.Second                                // columns of seconds are rounded
			most := min(d/3+time.Minute, 15*time.Minute)                     // a job that closes them may begin so late
			n, shortly := within(ages, d, d+most), within(ages, d-most/4, d) // n is more than twice as dense
			if n >= 30 && 5*n >= len(ages) && 8*shortly <= n && 3*within(ages, d+most, math.MaxInt64) <= n {
				return d + 2*time.Second, fmt.Sprintf("%d of %d closed orders ended then, by %s", n, len(ages), c.Name), true
			}
		}
	}
	return 0, "", known
}

// chooseDelay looks when orders were closed by time, or how long unpaid orders stay open today.
func (p *Proposal) chooseDelay() {
	aged := func(of func(row int) bool) (ages []time.Duration) {
		for row, at := range p.created.at {
			if !at.IsZero() && of(row) {
				ages = append(ages, p.f.Now.Sub(at))
			}
		}
		slices.Sort(ages)
		return ages
	}
	waiting, all := aged(p.unpaid), aged(anyRow)
	edge, says, known := p.edge(func(row int) bool { return p.to.in(row) && !p.isPaid(row) })
	if edge > 0 && (!p.created.zoned() || 2*within(waiting, -1<<62, edge) >= len(waiting)) {
		p.delay, p.why["delay"] = edge, says
		return
	}
	d, n := usualDelay(waiting, aged(p.to.in))
	others := func(from, to time.Duration) int { return within(all, from, to) - within(waiting, from, to) }
	recent, before := others(-1<<62, d), others(d, 2*d)
	burst := recent >= 20 && before*4 < recent || n < 100 && before*4 < max(recent, 4) // a rush may have begun then; the edge of many orders is sharper
	if copied := within(all, -1, d/4) == 0; d > 0 && !burst && !known && !copied {     // a copy has no new orders
		p.delay, p.why["delay"] = d, fmt.Sprintf("%d of %d unpaid orders are younger: compare it with the setting of your shop", n, len(waiting))
		p.doubt("the delay of %s is a guess, because %s, or answer --delay", short(d), p.why["delay"])
		return
	}
	q := Question{Flag: "delay", Text: "after how long does an unpaid order close? such as 30m"}
	if n := len(waiting); n > 0 && p.created.zoned() { // else their ages are wrong by some hours
		q.Numbers = []string{fmt.Sprintf("%d orders are unpaid: the newest is %s old, the middle one %s, the oldest %s", n, short(waiting[0]), short(waiting[n/2]),
			short(waiting[n-1]))}
	}
	p.ask(q)
}

// within counts the ages above from, and up to to.
func within(ages []time.Duration, from, to time.Duration) (n int) {
	for _, age := range ages {
		if age > from && age <= to {
			n++
		}
	}
	return n
}

// usualDelay returns the delay after which the shop seems to close unpaid orders; 0: there is none. waiting are the ages of unpaid orders. Most of
// them are younger than the delay, some nearly as old, and few are older. n is how many are younger.
func usualDelay(waiting, ended []time.Duration) (delay time.Duration, n int) {
	for _, d := range delays {
		d *= time.Minute
		n := within(waiting, -time.Minute, d)
		if n < 20 || n*10 < len(waiting)*8 {
			continue
		}
		few := within(waiting, d, 2*d)*5 < within(waiting, d/2, d)
		if few && within(waiting, d-max(d/10, 4*d/time.Duration(n)), d) > 0 && within(ended, d, 1<<62) > 0 {
			return d, n
		}
		break
	}
	return 0, 0
}

// short writes a duration as topics.yaml has it, in two units at most.
func short(d time.Duration) string {
	d = d.Abs()
	unit := time.Second
	if d > 48*time.Hour {
		unit = time.Hour
	} else if d > time.Hour {
		unit = time.Minute
	}
	return config.FormatDuration(d.Round(unit))
}
