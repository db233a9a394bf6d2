package ops

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"time"
)

// Judge says whether all is well. It lists causes before their consequences: the first problem explains the state. It is a pure function.
func Judge(facts Facts) Verdict {
	f := Findings{Facts: facts, kinds: map[ProblemKind]Kind{}}
	for _, c := range facts.Checks {
		for _, k := range c.Finds {
			f.kinds[k.Name] = k
		}
	}
	for _, c := range facts.Checks {
		if facts.Answers[c.Name].Err != nil {
			f.fault(c)
		}
		if c.Judge != nil {
			c.Judge(&f)
		}
	}
	return f.verdict()
}

// Findings are what the checks have found so far.
type Findings struct {
	Facts
	kinds map[ProblemKind]Kind
	all   []Problem
}

// Add adds a finding, and returns it for more to be said until the next one is added.
func (f *Findings) Add(kind ProblemKind, count int, detail string) *Problem {
	k := f.kinds[kind]
	f.all = append(f.all, Problem{Is: k, Kind: cmp.Or(k.As, kind), Severity: k.Severity, Detail: detail, Count: count, Runbook: k.Runbook})
	return &f.all[len(f.all)-1]
}

// Found returns the first finding of a kind; nil: there is none.
func (f *Findings) Found(kind ProblemKind) *Problem {
	if i := slices.IndexFunc(f.all, func(p Problem) bool { return p.Is.Name == kind }); i >= 0 {
		return &f.all[i]
	}
	return nil
}

// fault adds a finding for the error of a check, unless its server has no name. A late answer is no refusal.
func (f *Findings) fault(c Check) {
	a, kind := f.Answers[c.Name], NotAnswered
	if i := slices.IndexFunc(c.Finds, func(k Kind) bool { return k.Errors != nil && k.Errors(a.Err) }); i >= 0 {
		kind = c.Finds[i].Name
	}
	switch {
	case kind == "", errors.Is(a.Err, ErrNoDatabase), errors.Is(a.Err, errUnused), errors.Is(a.Err, ErrNoKafka) && kind != KafkaAway:
	case kind == NotAnswered, errors.Is(a.Err, errNotYet):
		f.Add(NotAnswered, 1, c.Name+": "+a.Err.Error()).Is.Name = ProblemKind(c.Name)
	default:
		// Redis ends some errors with a dot.
		p := f.Add(kind, 0, strings.TrimSuffix(a.Err.Error(), "."))
		if a.Known() { // a first question cannot tell when the fault began
			p.Since = a.Since
		}
		f.began(p, c.Failing)
	}
}

// began sets since when there is a problem, if a process knows an earlier moment.
func (f *Findings) began(p *Problem, what string) {
	for _, process := range AskStatus.Of(f.Facts).Value.Processes {
		since := time.UnixMilli(process.Failing[what]).UTC()
		if process.State == Present && process.Failing[what] > 0 && (p.Since.IsZero() || since.Before(p.Since)) {
			p.Since = since
		}
	}
}

// verdict leaves out the findings that others hide, and sums up the questions without an answer.
func (f *Findings) verdict() Verdict {
	var hidden []ProblemKind
	for _, p := range f.all {
		hidden = append(hidden, p.Is.Hides...)
	}
	v := Verdict{State: Well, Problems: []Problem{}}
	var unanswered []string
	for _, p := range f.all {
		switch {
		case slices.Contains(hidden, p.Is.Name), p.Severity == "":
		case p.Kind == NotAnswered:
			unanswered = append(unanswered, p.Detail)
		default:
			v.Problems = append(v.Problems, p)
		}
	}
	if len(unanswered) > 0 { //mutant:unanswered-left-out
		v.Problems = slices.Insert(v.Problems, 0, *f.Add(NotAnswered, len(unanswered), strings.Join(unanswered, "; ")))
	}
	slices.SortStableFunc(v.Problems, func(a, b Problem) int { return cmp.Compare(a.Severity.rank(), b.Severity.rank()) })
	has := func(is func(Problem) bool) bool { return slices.ContainsFunc(v.Problems, is) }
	switch {
	case has(func(p Problem) bool { return p.Severity == Urgent && !p.Is.Blind }):
		v.State = ActNow
	case has(func(p Problem) bool { return p.Is.Blind }):
		v.State = Unknown
	case has(func(p Problem) bool { return p.Severity == Today }):
		v.State = LookToday
	}
	return v
}
