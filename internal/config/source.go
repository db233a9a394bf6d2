package config

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Source holds the positions of the keys of the section orders in the file. A check
// against the database uses it to name the line of a wrong key.
type Source struct {
	file string
	at   map[string]position // by path, such as orders.due.index
}

// position is a line and a column, each from 1.
type position struct{ line, column int }

// At returns the position of a key under orders, such as due.index, in the form that
// editors understand: file:line:column. For a missing key it returns the position of the
// section that the key belongs to. A nil Source returns "".
func (s *Source) At(path string) string {
	if s == nil {
		return ""
	}
	for path = "orders." + path; ; path = path[:strings.LastIndexAny(path, ".[")] {
		if p, ok := s.at[path]; ok {
			return fmt.Sprintf("%s:%d:%d", s.file, p.line, p.column)
		}
		if path == "orders" {
			return s.file + ":1:1"
		}
	}
}

// Equal always returns true: the position of a key is not a setting.
func (s *Source) Equal(*Source) bool { return true }

// source collects the positions of the keys under orders.
func (r *reader) source() *Source {
	s := &Source{file: r.file, at: map[string]position{}}
	for path, n := range r.at {
		if path == "orders" || strings.HasPrefix(path, "orders.") {
			s.at[path] = positionOf(n)
		}
	}
	return s
}

func positionOf(n *yaml.Node) position { return position{max(n.Line, 1), max(n.Column, 1)} }
