package config

import (
	"fmt"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// reader visits the nodes of a document, stores the values and collects the problems.
// It continues after a problem, so that a person sees all mistakes of a file at once.
type reader struct {
	file     string
	root     *yaml.Node // nil: the document is empty
	problems Problems
	at       map[string]*yaml.Node // the values that are in the file, by path
	bad      map[string]bool       // by path: the value was refused, or its key is misspelt
}

func newReader(file string) *reader {
	return &reader{file: file, at: map[string]*yaml.Node{}, bad: map[string]bool{}}
}

// pairs calls each for every key of a mapping and its value.
func (r *reader) pairs(path string, n *yaml.Node, each func(key, v *yaml.Node, name string)) {
	r.at[path] = n
	m := resolveAlias(n)
	if isNull(m) {
		return
	}
	if m.Kind != yaml.MappingNode {
		r.refuse(path, n, "want keys with values, found "+describe(m), "write each as key: value, on a line of its own")
		return
	}
	first := map[string]int{}
	for i := 0; i+1 < len(m.Content); i += 2 {
		key, v := m.Content[i], m.Content[i+1]
		k := resolveAlias(key)
		switch line, again := first[k.Value]; {
		case k.Kind != yaml.ScalarNode || isNull(k):
			r.add(key, path, "a key must be a word, found "+describe(k), "write each as key: value")
		case k.ShortTag() == "!!merge":
			r.add(key, path, "merge keys are not supported", "write the keys out")
		case again:
			r.add(key, path, fmt.Sprintf("key %s is given twice, first on line %d", quote(k.Value), line), "remove one")
		default:
			first[k.Value] = key.Line
			each(key, v, k.Value)
		}
	}
}

// refuse reports the value at path and marks it, so that later checks skip it.
func (r *reader) refuse(path string, n *yaml.Node, what, do string) {
	r.bad[path] = true
	r.add(n, path, what, do)
}

// add reports a problem at n. Without a node the problem is at the start of the file.
func (r *reader) add(n *yaml.Node, path, what, do string) {
	p := Problem{File: r.file, Line: 1, Column: 1, Path: path, What: what, Do: do}
	if n != nil && n.Line > 0 {
		p.Line, p.Column = n.Line, n.Column
	}
	r.problems = append(r.problems, p)
}

// resolveAlias returns the target of an alias, and any other node unchanged.
func resolveAlias(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

func isNull(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null"
}

func describe(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "keys with values"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case isNull(n):
		return "nothing"
	default:
		return quote(n.Value)
	}
}

// quote quotes text of the file, cut to 40 characters.
func quote(s string) string {
	const most = 40
	if runes := []rune(s); len(runes) > most {
		s = string(runes[:most]) + "…"
	}
	return strconv.Quote(s)
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
