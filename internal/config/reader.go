package config

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"

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
	rooms    []*roomSection        // of the program
	skips    bool                  // the sections of other rooms
	schema   schema                // of the value, while the grammar is explored; nil: a document is read
}

// parser reads the value at a path, stores it, and reports problems to r.
type parser func(r *reader, path string, n *yaml.Node)

// Fields are the known keys of a section, each with what reads its value.
type Fields map[string]parser

func newReader(file string) *reader {
	return &reader{file: file, at: map[string]*yaml.Node{}, bad: map[string]bool{}}
}

// section reads a mapping with a fixed set of keys. An empty mapping counts as missing.
func section(known Fields) parser {
	return func(r *reader, path string, n *yaml.Node) {
		if r.schema != nil {
			r.is(r.exploreKeys(path, known))
			return
		}
		r.pairs(path, n, func(key, v *yaml.Node, name string) {
			if read, ok := known[name]; ok {
				read(r, join(path, name), v)
				return
			}
			keys := slices.Sorted(maps.Keys(known))
			what, do, meant := "unknown key "+quote(name), suggest(name, keys), closest(name, keys)
			switch {
			case meant != "":
				r.bad[join(path, meant)] = true // do not report the key as missing too
			case path == "" && r.skips && resolveAlias(v).Kind == yaml.MappingNode: //mutant:other-rooms-refused
				return
			case path == "":
				what += ": this program has no room of this name"
			case slices.ContainsFunc(r.rooms, func(room *roomSection) bool { return room.key == name }):
				do = fmt.Sprintf("write it at the top level of the file: %s: {…}", name)
			}
			r.add(key, path, what, do)
		})
	}
}

// Dropped refuses a key that earlier versions had. instead says what to do.
func Dropped(instead string) parser {
	return func(r *reader, path string, n *yaml.Node) {
		if r.is(schema{"not": schema{}}) {
			return
		}
		r.refuse(path, n, "there is no such key any more", instead)
	}
}

// entries reads a mapping with arbitrary keys.
func entries(read func(r *reader, path, name string, n *yaml.Node)) parser {
	return func(r *reader, path string, n *yaml.Node) {
		if r.schema != nil {
			one := r.explore(path, func(r *reader, path string, n *yaml.Node) { read(r, join(path, "x"), "x", n) })
			r.is(schema{"type": []string{"object", "null"}, "additionalProperties": one})
			return
		}
		r.pairs(path, n, func(key, v *yaml.Node, name string) {
			if name == "" || strings.TrimSpace(name) != name || strings.ContainsFunc(name, unicode.IsControl) {
				r.add(key, path, fmt.Sprintf("%s cannot be a name", quote(name)),
					"use one without control characters or space at either end")
				return
			}
			read(r, join(path, name), name, v)
		})
	}
}

// list reads a sequence. example is shown to a person who wrote something else.
func list(example string, read parser) parser {
	return func(r *reader, path string, n *yaml.Node) {
		if r.schema != nil {
			r.is(schema{"type": []string{"array", "null"}, "items": r.explore(path+"[0]", read)})
			return
		}
		r.at[path] = n
		seq := resolveAlias(n)
		if isNull(seq) {
			return
		}
		if seq.Kind != yaml.SequenceNode {
			r.refuse(path, n, "want a list, found "+describe(seq), "write it as "+example)
			return
		}
		for i, v := range seq.Content {
			read(r, path+"["+strconv.Itoa(i)+"]", v)
		}
	}
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

// scalar returns the node of a single value. If the node is not a single value, scalar
// reports a problem: want names the expected kind, and hint says how to fix it.
func (r *reader) scalar(path string, n *yaml.Node, want, hint string) (*yaml.Node, bool) {
	r.at[path] = n
	v := resolveAlias(n)
	switch {
	case v.Kind != yaml.ScalarNode:
		r.refuse(path, n, fmt.Sprintf("want %s, found %s", want, describe(v)), hint)
	case isNull(v):
		r.refuse(path, n, "has no value", hint+", or remove the key")
	default:
		return v, true
	}
	return nil, false
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
