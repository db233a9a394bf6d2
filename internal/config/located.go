package config

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Source says where the keys of the section orders stand in the file, for what only
// the database can find wrong about them.
type Source struct {
	file string
	at   map[string]position // by path, such as orders.due.index
}

// position is a line and a column, each from 1.
type position struct{ line, column int }

// At is the place of a key under orders, such as due.index, in the form that editors
// jump to: file:line:column. A key that is left out stands where the section does that
// it belongs to. Without a source it is empty.
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

// Equal is always true: where a key stands is no setting.
func (s *Source) Equal(*Source) bool { return true }

// source notes where the keys under orders stand.
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
