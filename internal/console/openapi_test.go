package console

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

type object = map[string]any

// openAPIOf returns the document that describes the endpoints.
func openAPIOf(endpoints []endpoint) object {
	schemas, paths := object{}, object{}
	for _, e := range endpoints {
		method, path, _ := strings.Cut(e.pattern, " ")
		operation := object{"summary": e.summary, "operationId": operationID(method, path), "responses": object{}}
		if e.action {
			operation["description"] = "Only an operator may do this, and only while actions are on."
		}
		if e.body != nil {
			operation["requestBody"] = object{"required": true, "content": content(schemas, e.body)}
		}
		for i, status := range e.statuses {
			response := object{"description": http.StatusText(status), "content": content(schemas, errorAnswer{})}
			if i == 0 || bodyAlways(e, status) {
				response["content"] = content(schemas, e.answer)
			}
			operation["responses"].(object)[strconv.Itoa(status)] = response
		}
		var parameters []object
		for _, m := range regexp.MustCompile(`\{(\w+)\}`).FindAllStringSubmatch(path, -1) {
			parameters = append(parameters, object{"name": m[1], "in": "path", "required": true, "schema": object{"type": "string"}})
		}
		if parameters != nil {
			operation["parameters"] = parameters
		}
		if paths[path] == nil {
			paths[path] = object{}
		}
		paths[path].(object)[strings.ToLower(method)] = operation
	}
	return object{
		"openapi": "3.1.0",
		"info": object{
			"title": "orderclose console", "version": "1",
			"description": "What the pages of the console show and do. Paths are below the base path of the console.",
		},
		"paths": paths, "components": object{"schemas": schemas},
	}
}

// bodyAlways reports whether an answer with this status has the body of a success: the value of a
// server that has never answered, and an order that was found nowhere.
func bodyAlways(e endpoint, status int) bool {
	return e.serve != nil && (status == http.StatusServiceUnavailable && !e.action || status == http.StatusNotFound && e.body != nil)
}

func operationID(method, path string) string {
	id := strings.ToLower(method)
	for _, part := range strings.FieldsFunc(strings.TrimPrefix(path, apiPrefix), func(r rune) bool { return strings.ContainsRune("/{}-", r) }) {
		id += strings.ToUpper(part[:1]) + part[1:]
	}
	return id
}

func content(schemas object, value any) object {
	return object{"application/json": object{"schema": schemaOf(schemas, reflect.TypeOf(value))}}
}

var (
	timeType = reflect.TypeFor[time.Time]()
	jsonType = reflect.TypeFor[json.Marshaler]()
	rawType  = reflect.TypeFor[json.RawMessage]()
	textType = reflect.TypeFor[interface{ MarshalText() ([]byte, error) }]()
)

// schemaOf returns the schema of a Go type as encoding/json writes it. Structs go to schemas.
func schemaOf(schemas object, t reflect.Type) object {
	switch {
	case t == timeType:
		return object{"type": "string", "format": "date-time"}
	case t == rawType || t.Kind() == reflect.Interface:
		return object{}
	case t.Kind() != reflect.Pointer && (t.Implements(jsonType) || t.Implements(textType) || reflect.PointerTo(t).Implements(textType)):
		return object{"type": "string"}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return schemaOf(schemas, t.Elem())
	case reflect.String:
		return object{"type": "string"}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Float32, reflect.Float64:
		return object{"type": "number"}
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 {
			return object{"type": "string", "contentEncoding": "base64"}
		}
		return object{"type": []string{"array", "null"}, "items": schemaOf(schemas, t.Elem())}
	case reflect.Map:
		return object{"type": []string{"object", "null"}, "additionalProperties": schemaOf(schemas, t.Elem())}
	case reflect.Struct:
		name := schemaName(t)
		if schemas[name] == nil {
			properties := object{}
			schemas[name] = object{"type": "object", "properties": properties}
			addFields(schemas, properties, t)
		}
		return object{"$ref": "#/components/schemas/" + name}
	}
	return object{"type": "integer"}
}

func addFields(schemas, properties object, t reflect.Type) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			addFields(schemas, properties, f.Type)
		case !f.IsExported() || name == "-":
		default:
			if name == "" {
				name = f.Name
			}
			properties[name] = schemaOf(schemas, f.Type)
		}
	}
}

// schemaName returns the name of a type: answer of ops.Status is answerStatus.
func schemaName(t reflect.Type) string {
	name, argument, generic := strings.Cut(t.Name(), "[")
	if generic {
		name += argument[strings.LastIndex(argument, ".")+1 : len(argument)-1]
	}
	if pkg := t.PkgPath(); !generic && !strings.HasSuffix(pkg, "internal/ops") && !strings.HasSuffix(pkg, "internal/console") {
		name = pkg[strings.LastIndex(pkg, "/")+1:] + strings.ToUpper(name[:1]) + name[1:]
	}
	return name
}

func TestOpenAPI_DescribesTheEndpoints(t *testing.T) {
	want := must.Get(json.MarshalIndent(openAPIOf((&Console{asks: &ops.Questions{}}).endpoints()), "", "  "))(t)
	want = append(want, '\n')
	if os.Getenv("UPDATE_GOLDEN") == "1" {
		must.Do(t, os.WriteFile("openapi.json", want, 0o644))
		return
	}
	if !bytes.Equal(openAPI, want) {
		t.Error("openapi.json does not describe the endpoints: UPDATE_GOLDEN=1 go test ./internal/console -run OpenAPI writes it")
	}
}
