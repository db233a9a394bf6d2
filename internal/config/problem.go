package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
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

// SplitProblems returns the problems in err as separate errors.
func SplitProblems(err error) []error {
	var problems Problems
	if errors.As(err, &problems) {
		return problems.Unwrap()
	}
	return []error{err}
}

func (ps Problems) sorted() Problems {
	slices.SortStableFunc(ps, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return ps
}

// Source holds the positions of the keys of the section orders in the file. A check
// against the database uses it to name the line of a wrong key.
type Source struct {
	file string
	at   map[string]*yaml.Node // reader.at
}

// At returns the position of a key under orders, such as due.index, in the form that
// editors understand: file:line:column. For a missing key it returns the position of the
// section that the key belongs to. A nil Source returns "".
func (s *Source) At(path string) string {
	if s == nil {
		return ""
	}
	n := s.at[nearestIn(s.at, "orders."+path)]
	return fmt.Sprintf("%s:%d:%d", s.file, max(n.Line, 1), max(n.Column, 1))
}

// Equal always returns true: the position of a key is not a setting.
func (s *Source) Equal(*Source) bool { return true }

// nearestIn returns path if it is in the file, or else the path of the innermost section around
// it that is. The outermost section must be in the file.
func nearestIn(at map[string]*yaml.Node, path string) string {
	for at[path] == nil {
		path = path[:strings.LastIndexAny(path, ".[")]
	}
	return path
}
