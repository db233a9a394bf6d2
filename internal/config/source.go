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
