package deploy

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/room"
	"github.com/orderclose/orderclose/rooms"
)

// The chart refuses unknown values by its schema, before anything is installed. These tests compare
// the schema with what orderclose reads.

// jsonSchema is a part of values.schema.json.
type jsonSchema struct {
	Ref         string                 `json:"$ref"`
	Properties  map[string]*jsonSchema `json:"properties"`
	Definitions map[string]*jsonSchema `json:"definitions"`
	Additional  any                    `json:"additionalProperties"`
	Pattern     string                 `json:"pattern"`
}

func chartSchema(t *testing.T) *jsonSchema {
	t.Helper()
	text := must.Get(os.ReadFile("helm/orderclose/values.schema.json"))(t)
	var s jsonSchema
	must.Do(t, json.Unmarshal(text, &s))
	return &s
}

// A variable that orderclose does not read, such as a misspelt one, is refused.
func TestChartSchema_ListsTheVariables(t *testing.T) {
	s := chartSchema(t)
	var env, console []string
	for _, name := range slices.Sorted(maps.Keys(knownVariables(t))) {
		switch {
		case strings.HasPrefix(name, "ORDERCLOSE_CONSOLE_"), name == config.EnvRunbook:
			console = append(console, name)
		case name != config.EnvListen && name != config.EnvInstance: // the chart sets them
			env = append(env, name)
		}
	}
	for path, c := range map[string]struct {
		listed *jsonSchema
		want   []string
	}{"env": {s.Properties["env"], env}, "console.env": {s.Properties["console"].Properties["env"], console}} {
		if have := slices.Sorted(maps.Keys(c.listed.Properties)); !slices.Equal(have, c.want) || c.listed.Additional != false {
			t.Errorf("%s of values.schema.json lists\n%q, want\n%q and no other", path, have, c.want)
		}
	}
}

// A key of topics.yaml that orderclose does not read is refused, and no other: the schema has every key
// of the file that describes all and those of the rooms, and no key that the program calls unknown.
func TestChartSchema_ListsTheKeysOfTopics(t *testing.T) {
	s := chartSchema(t)
	text := must.Get(os.ReadFile("../topics.yaml"))(t)
	var described map[string]any
	must.Do(t, yaml.Unmarshal(text, &described))
	topics := s.Properties["topics"]
	s.requireKeys(t, topics, described, "topics")
	for _, r := range room.Sections(rooms.All()) {
		for _, path := range r.Keys() {
			section, key, _ := strings.Cut(path, ".")
			s.requireKeys(t, topics, map[string]any{section: map[string]any{key: nil}}, "topics")
		}
	}
	for key, sub := range topics.Properties {
		s.requireKnown(t, sub, []string{key})
	}
}

// resolve returns the schema to which a reference leads.
func (s *jsonSchema) resolve(sub *jsonSchema) *jsonSchema {
	if sub != nil && sub.Ref != "" {
		return s.Definitions[strings.TrimPrefix(sub.Ref, "#/definitions/")]
	}
	return sub
}

// requireKeys requires that a schema lists the keys of a value, and of those in it.
func (s *jsonSchema) requireKeys(t *testing.T, sub *jsonSchema, value any, path string) {
	t.Helper()
	keys, ok := value.(map[string]any)
	if sub = s.resolve(sub); !ok || sub.Additional != false {
		return // a duration, a list, or names of the user's own
	}
	for key, v := range keys {
		if sub.Properties[key] == nil {
			t.Errorf("%s.%s is not in values.schema.json", path, key)
			continue
		}
		s.requireKeys(t, sub.Properties[key], v, path+"."+key)
	}
}

// requireKnown requires that the program knows the key at a path, and those below it.
func (s *jsonSchema) requireKnown(t *testing.T, sub *jsonSchema, path []string) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "topics.yaml")
	doc := strings.Join(path, ": {") + ": null" + strings.Repeat("}", len(path)-1)
	must.Do(t, os.WriteFile(name, []byte(doc), 0o600))
	if _, err := config.Load(name, room.Sections(rooms.All())...); err != nil && strings.Contains(err.Error(), "unknown key") {
		t.Errorf("values.schema.json has topics.%s: %v", strings.Join(path, "."), err)
	}
	for key, below := range s.resolve(sub).Properties {
		s.requireKnown(t, below, append(slices.Clone(path), key))
	}
}

// A duration that the program accepts passes the schema, and usual mistakes do not.
func TestChartSchema_ADurationIsOneOfTheProgram(t *testing.T) {
	pattern := regexp.MustCompile(chartSchema(t).Definitions["duration"].Pattern)
	for text, want := range map[string]bool{
		"10s": true, "1h30m": true, "30d": true, "1d12h": true, "1.5h": true, "250ms": true,
		"1x": false, "5 minutes": false, "30": false, "-5m": false, "m": false, "1w": false,
	} {
		if _, err := config.ParseDuration(text); (err == nil) != want || pattern.MatchString(text) != want {
			t.Errorf("%s: the program says %v, the schema %v, want %v", text, err, pattern.MatchString(text), want)
		}
	}
}

// topics.schema.json is for editors, and topics.yaml names it. UPDATE_GOLDEN=1 writes it.
func TestTopicsSchema_FollowsFromTheGrammar(t *testing.T) {
	const name = "../topics.schema.json"
	want := must.Get(config.Schema(room.Sections(rooms.All())...))(t)
	if os.Getenv("UPDATE_GOLDEN") == "1" {
		must.Do(t, os.WriteFile(name, want, 0o644))
	}
	have := must.Get(os.ReadFile(name))(t)
	if string(have) != string(want) {
		t.Errorf("%s is not what the grammar gives: UPDATE_GOLDEN=1 go test ./deploy -run TopicsSchema", name)
	}
	if text := must.Get(os.ReadFile("../topics.yaml"))(t); !strings.HasPrefix(string(text), "# yaml-language-server: $schema=topics.schema.json\n") {
		t.Error("the first line of topics.yaml does not name topics.schema.json")
	}
}
