package config

import (
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/orderclose/orderclose/internal/store/mapping"
)

// Schema returns the keys of a topics.yaml and the kinds of their values, with those of rooms, as a JSON schema (draft 7) for editors.
// It follows from the tags. A file that it refuses, Parse refuses too; Parse also compares values with each other.
func Schema(rooms ...AnySection) ([]byte, error) {
	all := schemaOfSection(defaults(rooms...).fields())
	all["$schema"], all["title"] = "http://json-schema.org/draft-07/schema#", "topics.yaml of orderclose"
	text, err := json.MarshalIndent(all, "", "  ")
	return append(text, '\n'), err
}

// schema is a part of a JSON schema.
type schema map[string]any

func anyOf(all ...schema) schema { return schema{"anyOf": all} }

func schemaOfSection(fields []field) schema {
	properties := schema{}
	for _, key := range keysOf(fields) {
		if found := under(fields, key); found[0].name == "" {
			properties[key] = schemaOf(found[0])
		} else {
			properties[key] = schemaOfSection(found)
		}
	}
	section := schema{"type": []string{"object", "null"}, "additionalProperties": false, "properties": properties}
	if short := shortOf(fields); short != nil {
		return anyOf(schemaOf(*short), section)
	}
	return section
}

func schemaOf(f field) (all schema) {
	has := func(tag string) bool { _, has := f.tag.Lookup(tag); return has }
	duration, scalar := schema{"type": "string", "pattern": durationPattern}, schema{"type": []string{"string", "integer"}}
	switch v := f.value; f.value.Interface().(type) {
	case time.Duration:
		return duration
	case orNever:
		return anyOf(duration, schema{"const": "never"})
	case word:
		return scalar
	case mapping.Value:
		if f.tag.Get("keyed") != "" {
			return schema{"type": []string{"string", "number", "null"}}
		}
		return scalar
	case bool:
		return schema{"type": "boolean"}
	case int:
		low, _ := strconv.Atoi(f.tag.Get("min"))
		high, _ := strconv.Atoi(f.tag.Get("max"))
		return schema{"type": "integer", "minimum": low, "maximum": high}
	default:
		switch {
		case has("enum"):
			return schema{"enum": strings.Fields(f.tag.Get("enum"))}
		case v.Kind() == reflect.String, v.Type() == reflect.TypeFor[time.Time]():
			return schema{"type": "string"}
		case v.Kind() == reflect.Struct:
			return schemaOfSection(fieldsOf(v))
		case v.Kind() == reflect.Pointer:
			all = schemaOfSection(fieldsOf(reflect.New(v.Type().Elem()).Elem()))
		case has("keyed"), v.Kind() == reflect.Map:
			all = schema{"type": []string{"object", "null"}, "additionalProperties": entryOf(f)}
		default:
			if all = (schema{"type": []string{"array", "null"}, "items": entryOf(f)}); has("one") {
				all = anyOf(entryOf(f), all)
			}
		}
		if has("none") {
			all = anyOf(all, schema{"const": "none"}, schema{"const": "no"})
		}
	}
	return all
}

// entryOf returns the schema of an entry of a list or a map.
func entryOf(f field) schema {
	entry := reflect.New(f.value.Type().Elem()).Elem()
	switch _, keyed := f.tag.Lookup("keyed"); {
	case keyed:
		entry = entry.Field(1)
	case entry.Kind() == reflect.Pointer:
		entry = reflect.New(entry.Type().Elem()).Elem()
	}
	return schemaOf(field{"", entry, f.tag})
}
