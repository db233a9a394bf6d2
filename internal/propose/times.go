package propose

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/store/mapping"
)

// timeChoice is a column with times, how to read it, and the evidence.
type timeChoice struct {
	mapping.TimeColumn
	why string
}

// kindOf returns how a column holds times, without the zone; false: it holds none.
func kindOf(c mapping.Column, values []any) (kind mapping.TimeColumn, ok bool) {
	if !isInteger(c) {
		precision := map[int]mapping.Precision{0: mapping.Seconds, 1: mapping.Millis, 2: mapping.Micros}[min((c.Digits+2)/3, 2)]
		return mapping.TimeColumn{Type: mapping.TimeType(c.Type), Precision: precision}, true
	}
	n, of := 0, map[mapping.TimeType]int{}
	for _, v := range values {
		if x := number(v); x != 0 {
			n++
			for t, unit := range map[mapping.TimeType]float64{mapping.UnixSeconds: 1, mapping.UnixMillis: 1000} {
				if x > 9e8*unit && x < 5e9*unit {
					of[t]++
				}
			}
		}
	}
	for t, got := range of {
		if got*100 >= n*98 {
			return mapping.TimeColumn{Type: t}, true
		}
	}
	return mapping.TimeColumn{Type: mapping.UnixSeconds}, n == 0 && len(values) == 0
}

// instants decodes the values of a column; the zero time: none.
func instants(t mapping.TimeColumn, values []any) []time.Time {
	all := make([]time.Time, len(values))
	if t.Type == mapping.DateTime && t.Zone == "" {
		t.Zone = "UTC" // not known yet: ages are wrong by some hours
	}
	codec, err := t.Codec()
	if err != nil {
		return all
	}
	for i, v := range values {
		if s, is := v.(string); is {
			v = []byte(s)
		}
		if at, ok, err := codec.Decode(v); ok && err == nil {
			all[i] = at
		}
	}
	return all
}

// chooseCreated chooses the time of creation, and the zone of all times of the table.
func (p *Proposal) chooseCreated(f *Facts, a Answers) {
	t := p.table
	for _, column := range t.ranked("created", isTime) {
		values := t.rows.of(column)
		kind, ok := kindOf(t.Columns[column], values)
		if part, n := share(values, nil); !ok || n > 0 && part < 0.9 {
			continue
		}
		if len(values) == 0 && isInteger(t.Columns[column]) {
			p.doubt("%s has no rows: that %s holds seconds is not known, compare it with the first row", t.Name, column)
		}
		kind.Column = t.real(column)
		p.created = timeChoice{TimeColumn: kind, why: strings.ToUpper(t.Columns[column].Type)}
		if at := instants(kind, values); kind.Type != mapping.DateTime && len(at) > 2 && at[2].After(f.Now.Add(10*time.Minute)) {
			p.doubt("%s has times in the future, such as %s: the shop's connections have another time zone than %s says, and orders would close late", column,
				at[2].Format(time.RFC3339), kind.Type)
		}
		switch kind.Type {
		case mapping.DateTime:
			p.chooseZone(f, a, values)
		case mapping.UnixSeconds:
			p.created.why += ", seconds since 1970 by its values"
		case mapping.UnixMillis:
			p.created.why += ", milliseconds since 1970 by its values"
		}
		return
	}
}

// noDST are the zones of which an offset alone is enough: no region there changes its clocks.
func noDST(offset time.Duration) bool {
	return offset == 0 || offset >= 4*time.Hour && offset <= 9*time.Hour+30*time.Minute && offset != 5*time.Hour
}

// offsets are those of time zones that are no whole hours.
var offsets = []time.Duration{-9*60 - 30, -3*60 - 30, 3*60 + 30, 4*60 + 30, 5*60 + 30, 5*60 + 45, 6*60 + 30, 8*60 + 45, 9*60 + 30, 10*60 + 30}

// chooseZone compares the newest time with the database's clock. The zone is known if the newest row would be some minutes old in it.
func (p *Proposal) chooseZone(f *Facts, a Answers, values []any) {
	var newest time.Time
	var all []time.Time
	for _, v := range values {
		if at, is := v.(time.Time); is && at.Before(f.Now.Add(15*time.Hour)) {
			all = append(all, at)
		}
	}
	if slices.SortFunc(all, func(a, b time.Time) int { return b.Compare(a) }); len(all) > 0 {
		newest = all[min(2, len(all)-1)] // a wrong clock may have written one or two
	}
	if a.Zone != "" {
		p.created.Zone, p.created.why = a.Zone, p.created.why+", in the zone of --zone"
		return
	}
	written := time.Date(newest.Year(), newest.Month(), newest.Day(), newest.Hour(), newest.Minute(), newest.Second(), 0, time.UTC)
	ahead := written.Sub(f.Now)
	offset := time.Duration(math.MaxInt64)
	for h := -11; h <= 14; h++ {
		for _, o := range append([]time.Duration{time.Duration(h) * 60}, offsets...) {
			if o *= time.Minute; o >= ahead-time.Minute && o < offset {
				offset = o
			}
		}
	}
	age := offset - ahead
	zone, shown := zoneName(offset)
	q := Question{Flag: "zone", Text: fmt.Sprintf("in which time zone does the shop write %s.%s? UTC, an offset such as +08:00, or a name such as Europe/Berlin",
		p.table.Name, p.created.Column)}
	switch {
	case newest.IsZero():
		q.Numbers = []string{"the table has no rows to compare with the clock"}
	case age > 20*time.Minute || ahead < -12*time.Hour:
		q.Numbers = []string{fmt.Sprintf("its newest time is %s, and the database's clock is at %s in UTC: that is no recent row",
			written.Format("2006-01-02 15:04:05"), f.Now.Format("2006-01-02 15:04:05"))}
	case !noDST(offset):
		q.Numbers = []string{fmt.Sprintf("%s now, by its newest row; but zones with that offset may have summer time: name the place", shown)}
	default:
		p.created.Zone = zone
		p.created.why += fmt.Sprintf(", %s by its newest rows (%s old)", shown, age.Round(time.Second))
		return
	}
	p.ask(q)
}

// zoneName writes an offset for topics.yaml, and for people.
func zoneName(offset time.Duration) (zone, shown string) {
	if offset == 0 {
		return "UTC", "UTC"
	}
	sign, d := '+', offset
	if d < 0 {
		sign, d = '-', -d
	}
	zone = fmt.Sprintf("%c%02d:%02d", sign, int(d.Hours()), int(d.Minutes())%60)
	return zone, strings.TrimSuffix(fmt.Sprintf("UTC%c%d:%02d", sign, int(d.Hours()), int(d.Minutes())%60), ":00")
}

// delays are those that shops have, in minutes.
var delays = []time.Duration{1, 2, 3, 5, 10, 15, 20, 30, 45, 60, 90, 120, 180, 240, 360, 720, 1440, 2880, 4320, 10_080, 20_160, 43_200}

// after returns how long after its creation each of the orders has another time, sorted.
func (p *Proposal) after(t timeChoice, of func(i int) bool) (all []time.Duration) {
	created := instants(p.created.TimeColumn, p.table.rows.of(strings.ToLower(p.created.Column)))
	for i, at := range instants(t.TimeColumn, p.table.rows.of(strings.ToLower(t.Column))) {
		if of(i) && !at.IsZero() && !created[i].IsZero() {
			all = append(all, at.Sub(created[i]))
		}
	}
	slices.Sort(all)
	return all
}

// timeIn reads a further column as a time, in the zone of the creation time.
func (p *Proposal) timeIn(column string) (t timeChoice, ok bool) {
	kind, ok := kindOf(p.table.Columns[column], p.table.rows.of(column))
	if kind.Column = p.table.real(column); kind.Type == mapping.DateTime {
		kind.Zone = p.created.Zone
	}
	return timeChoice{TimeColumn: kind, why: strings.ToUpper(p.table.Columns[column].Type)}, ok
}

// chooseDue chooses a column of due times if the table has one, or else the delay after the creation.
func (p *Proposal) chooseDue(f *Facts, a Answers) {
	t, open := p.table, p.status.is(unpaid)
	for _, column := range t.ranked("due", isTime) {
		due, ok := p.timeIn(column)
		if !ok || t.Columns[column].OnUpdate || t.Columns[column].DefaultNow || p.created.Column == "" {
			continue
		}
		if due.Type == mapping.DateTime && due.Zone == "" { // the creation time needs none
			if due.Zone = a.Zone; a.Zone == "" {
				p.ask(Question{Flag: "zone", Text: fmt.Sprintf("in which time zone does the shop write %s.%s?", t.Name, due.Column)})
				return
			}
		}
		ages, unpaidRows := p.after(due, open), 0
		for i := range t.rows.values {
			if open(i) {
				unpaidRows++
			}
		}
		if len(ages) == 0 || len(ages)*10 < unpaidRows*8 || ages[len(ages)/20] <= 0 || ages[len(ages)*9/10] > 60*24*time.Hour {
			continue // not the time until which an order may stay unpaid
		}
		middle := ages[len(ages)/2]
		due.why += fmt.Sprintf(", %s after %s in the middle of %d unpaid orders", short(middle), p.created.Column, len(ages))
		if p.due = due; p.delay == 0 {
			p.delay, p.why["delay"] = max(middle.Round(time.Second), time.Second), "as "+due.Column+" has it"
		}
		return
	}
	if p.created.Column == "" {
		p.Refused = fmt.Sprintf("table %s has no time of creation that can be read: its columns are text, dates, or in no known unit. "+
			"Add a column of type DATETIME, and map it by docs/mapping.md", t.Name)
		return
	}
	for _, column := range t.ranked("placed", isTime) { // a cart may be made hours before it is an order
		at, ok := p.timeIn(column)
		set, n := share(t.rows.of(column), open)
		late := p.after(at, open)
		if ok && n > 0 && set > 0.99 && (at.Type != mapping.DateTime || at.Zone != "") && len(late) > 0 && late[0] >= 0 && !t.Columns[column].OnUpdate {
			at.why += fmt.Sprintf(", set in all unpaid orders, and up to %s after %s", short(late[len(late)-1]), p.created.Column)
			p.created = at
			break
		}
	}
	if c := p.created; c.Type == mapping.DateTime && strings.Contains(c.Zone, "/") && changesClocks(c.Zone, f.Now) {
		p.Refused = fmt.Sprintf("%s.%s is a local time in %s, whose clocks change: a due time cannot be computed from it. Add a due column in UTC: "+
			"docs/mapping.md, A table without due times", t.Name, c.Column, c.Zone)
		return
	}
	p.chooseDelay(f, a)
}

func changesClocks(zone string, now time.Time) bool {
	loc, err := mapping.ParseZone(zone)
	if err != nil {
		return false
	}
	_, winter := time.Date(now.Year(), 1, 15, 0, 0, 0, 0, loc).Zone()
	_, summer := time.Date(now.Year(), 7, 15, 0, 0, 0, 0, loc).Zone()
	return winter != summer
}

// chooseDelay looks how long unpaid orders stay open today.
func (p *Proposal) chooseDelay(f *Facts, a Answers) {
	if a.Delay > 0 {
		p.delay, p.why["delay"] = a.Delay, "--delay"
		return
	}
	open, shut := p.status.is(unpaid), p.status.is(closed)
	var waiting, ended []time.Time
	var newest time.Time
	for i, at := range instants(p.created.TimeColumn, p.table.rows.of(strings.ToLower(p.created.Column))) {
		if at.After(newest) && !at.After(f.Now) {
			newest = at
		}
		if open(i) && !at.IsZero() {
			waiting = append(waiting, at)
		} else if shut(i) && !at.IsZero() {
			ended = append(ended, at)
		}
	}
	// Rows that nobody adds to any more get older, and what is right for the clock is wrong for them.
	d, n := usualDelay(waiting, ended, f.Now)
	if then, _ := usualDelay(waiting, ended, newest); then == d && d > 0 {
		p.delay, p.why["delay"] = d, fmt.Sprintf("%d of %d unpaid orders are younger: compare it with the setting of your shop", n, len(waiting))
		return
	}
	q := Question{Flag: "delay", Text: "after how long does an unpaid order close? such as 30m"}
	if slices.SortFunc(waiting, time.Time.Compare); len(waiting) > 0 {
		age := func(i int) string { return short(f.Now.Sub(waiting[len(waiting)-1-i])) }
		q.Numbers = []string{fmt.Sprintf("%d orders are unpaid: the newest is %s old, the middle one %s, the oldest %s", len(waiting), age(0), age(len(waiting)/2),
			age(len(waiting)-1))}
	}
	p.ask(q)
}

// usualDelay returns the delay over which the times of unpaid orders are spread, up to its end, so that beyond it are only the few that somebody
// has missed, and how many are within it; 0: there is none.
func usualDelay(waiting, ended []time.Time, now time.Time) (time.Duration, int) {
	within := func(all []time.Time, from, to time.Duration) (n int) {
		for _, at := range all {
			if age := now.Sub(at); age > from && age <= to {
				n++
			}
		}
		return n
	}
	for _, d := range delays {
		d *= time.Minute
		n := within(waiting, -time.Minute, d)
		if n >= 20 && n*10 >= len(waiting)*8 && within(waiting, d*4/5, d) > 0 && within(waiting, d, 2*d)*5 < within(waiting, d/2, d) && within(ended, d, 1<<62) > 0 {
			return d, n
		}
	}
	return 0, 0
}

// short writes a duration as topics.yaml has it, in two units at most.
func short(d time.Duration) string {
	switch d = d.Abs(); {
	case d > 48*time.Hour:
		d = d.Round(time.Hour)
	case d > time.Hour:
		d = d.Round(time.Minute)
	default:
		d = d.Round(time.Second)
	}
	return config.FormatDuration(d)
}
