package config

import (
	"encoding/json"
	"maps"
	"slices"

	"go.yaml.in/yaml/v3"
)

// Schema returns the keys of a topics.yaml and the kinds of their values, with those of rooms, as a JSON schema (draft 7) for editors.
// It follows from the grammar. A file that it refuses, Parse refuses too; Parse also compares values with each other.
func Schema(rooms ...AnySection) ([]byte, error) {
	all := newReader("").explore("", defaults(rooms...).grammar())
	all["$schema"], all["title"] = "http://json-schema.org/draft-07/schema#", "topics.yaml of orderclose"
	text, err := json.MarshalIndent(all, "", "  ")
	return append(text, '\n'), err
}

// schema is a part of a JSON schema.
type schema map[string]any

// anything stands for each value while a reader explores the grammar: a text, which no parser takes for nothing.
var anything = &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: "x"}

// explore returns what a parser reads. Parsers store anything, and report problems of it, so explore has a reader of its own.
func (r *reader) explore(path string, read parser) schema {
	outer := r.schema
	r.schema = schema{}
	read(r, path, anything)
	found := r.schema
	r.schema = outer
	return found
}

// isAny adds to the schema that is explored that a value is of one of these kinds. A reader that does not explore returns false.
func (r *reader) isAny(path string, kinds ...parser) bool {
	if r.schema == nil {
		return false
	}
	var all []schema
	for _, read := range kinds {
		all = append(all, r.explore(path, read))
	}
	r.schema["anyOf"] = all
	return true
}

// is adds to the schema that is explored what a value is. A reader that does not explore returns false.
func (r *reader) is(what schema) bool {
	if r.schema == nil {
		return false
	}
	maps.Copy(r.schema, what)
	return true
}

// exploreKeys returns the schema of a section. It leaves out keys that are dropped.
func (r *reader) exploreKeys(path string, known Fields) schema {
	properties := schema{}
	for _, name := range slices.Sorted(maps.Keys(known)) {
		if s := r.explore(join(path, name), known[name]); s["not"] == nil {
			properties[name] = s
		}
	}
	return schema{"type": []string{"object", "null"}, "additionalProperties": false, "properties": properties}
}

// nothing reads an empty value.
func nothing(r *reader, _ string, _ *yaml.Node) { r.is(schema{"type": "null"}) }

// word reads one word, and nothing else.
func word(text string) parser {
	return func(r *reader, _ string, _ *yaml.Node) { r.is(schema{"const": text}) }
}
