package ops

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/orderclose/orderclose/internal/config"
)

// DelayChange is a change of the delay of a category. From and To are delays as in topics.yaml.
type DelayChange struct {
	Category string    `json:"category"` // "": all that topics.yaml does not list; "rule payment card": the orders that a rule matches
	From     string    `json:"from"`
	To       string    `json:"to"`
	Note     string    `json:"note,omitempty"` // why From or To is the delay of all that are not listed; "": neither is
	At       time.Time `json:"at"`             // when a compensator recorded it, by the brokers' clock
	File     string    `json:"file,omitempty"` // the first digits of the new file's SHA-256
	Process  string    `json:"process"`        // that compensator
	from, to time.Duration
}

// delayChanges returns the changes between processes whose delays were news one after the other. Both lists
// have the newest first.
func delayChanges(news []Process) (all []DelayChange) {
	for i := range max(0, len(news)-1) {
		after, before := news[i], news[i+1]
		names := maps.Clone(before.Delays)
		maps.Copy(names, after.Delays)
		for _, name := range slices.Sorted(maps.Keys(names)) {
			from, to, note := before.Delay(name), after.Delay(name), ""
			if before.Delays[name] == 0 {
				note = "listed since then, it had the default's"
			} else if after.Delays[name] == 0 {
				note = "no longer listed, it has the default's"
			}
			if from != to {
				all = append(all, DelayChange{name, config.FormatDuration(from), config.FormatDuration(to), note, after.Announced, after.File, after.Name, from, to})
			}
		}
	}
	return all
}

// delayFallIsRecent is how long a fall of a delay counts as a problem.
const delayFallIsRecent = 24 * time.Hour

// fallIsFresh is how long a fall is urgent: if it is a mistake, orders close too early.
const fallIsFresh = time.Hour

// delayFall is a change of a delay to half of the longest of the last day, or less, and the rise after it.
// Without a rise, rose.At is zero.
type delayFall struct {
	DelayChange
	rose DelayChange
}

// fallenDelays returns the last recent fall of each category: those without a rise before the others.
func fallenDelays(changes []DelayChange, now time.Time) (fallen []delayFall) {
	recent := slices.DeleteFunc(slices.Clone(changes), func(c DelayChange) bool { return now.Sub(c.At) >= delayFallIsRecent })
	longest, rose, found := map[string]time.Duration{}, map[string]DelayChange{}, map[string]bool{}
	for _, c := range recent {
		longest[c.Category] = max(longest[c.Category], c.from)
	}
	for _, c := range recent {
		switch most := longest[c.Category]; {
		case found[c.Category]:
		case 2*c.to <= most: //mutant:half-delay-accepted
			c.From, found[c.Category] = config.FormatDuration(most), true
			fallen = append(fallen, delayFall{c, rose[c.Category]})
		default:
			rose[c.Category] = c
		}
	}
	slices.SortStableFunc(fallen, func(a, b delayFall) int { return a.rose.At.Compare(b.rose.At) })
	return fallen
}

// over returns when the last order with the short delay is due, if the delay has risen.
func (f delayFall) over() time.Time { return f.rose.At.Add(f.to) }

// describe says what fell, and how to move the orders that have the short delay. A checkout may read a
// changed file 5 s before a compensator records it.
func (f delayFall) describe() string {
	what := cmp.Or(f.Category, "default") + fmt.Sprintf(": from %s to %s, by the file %s", f.From, f.To, cmp.Or(f.File, "of the program itself"))
	if f.Note != "" {
		what += " (" + f.Note + ")"
	}
	category, move := "", "then this line has the command that postpones the orders made meanwhile"
	isRule := strings.HasPrefix(f.Category, config.RuleDelay)
	switch {
	case isRule: // no command selects orders by attributes
		move = "move the orders of the rule that were made meanwhile by an UPDATE of their due times"
	case f.Category != "":
		category = " --category " + ShellQuote(f.Category)
	}
	if f.rose.At.IsZero() {
		return what + fmt.Sprintf("; if that is a mistake: orderclose pause%s --for 30m --reason WHY, correct the file, and %s", category, move)
	}
	if isRule {
		return what + fmt.Sprintf(", until %s; %s", stamp(f.rose.At), move)
	}
	return what + fmt.Sprintf(", until %s; orders made meanwhile that are closed: orderclose runbook the-delay-of-a-category-was-wrong; orders made meanwhile "+
		"that are open: orderclose postpone%s --created-from %s --created-before %s --due-before %s --by %s --plan plan.jsonl", stamp(f.rose.At), category,
		stamp(f.At.Add(-5*time.Second)), stamp(f.rose.At), stamp(f.over()), config.FormatDuration((f.rose.to-f.to).Truncate(time.Second)))
}
