package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Problem is one mistake in a file, with a hint how to fix it.
type Problem struct {
	File   string
	Line   int    // from 1
	Column int    // from 1
	Path   string // the key, such as delays.categories.virtual; "" for the file
	What   string // the mistake
	Do     string // how to fix it
}

// Error formats the problem as one line, in the form that editors understand.
func (p Problem) Error() string {
	at := fmt.Sprintf("%s:%d:%d: ", p.File, p.Line, p.Column)
	if p.Path != "" {
		at += p.Path + ": "
	}
	return at + p.What + "; " + p.Do
}

// Problems lists all mistakes of a file, in the order of the file.
type Problems []Problem

// Error returns one line for each problem.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns the problems as separate errors.
func (ps Problems) Unwrap() []error {
	errs := make([]error, len(ps))
	for i, p := range ps {
		errs[i] = p
	}
	return errs
}

func (ps Problems) sorted() Problems {
	slices.SortStableFunc(ps, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return ps
}
