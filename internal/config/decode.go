package config

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"go.yaml.in/yaml/v3"

	"github.com/orderclose/orderclose/internal/signature"
	"github.com/orderclose/orderclose/internal/store/mapping"
)

// The tags of a field say what a file may have there. Parse, Changes and the JSON schema follow them.
//
//	yaml      the key, such as batch, or delays.max with the sections around it; ",inline": the keys of a struct belong to the section
//	          around it. A field without the tag has no key.
//	short     a single value in place of the section is the value of this key
//	one       a single entry may stand in place of the list
//	keyed     a list of pairs is written as keys with values; keyed:"conditions" allows null, fractions, lists and not too
//	none      the word none may stand in place of the value, which must not be empty
//	min, max  of a whole number
//	enum      the words that are allowed, with spaces between them
//	is        what a text is: see texts
//	example   of a list, for errors

// field is a key, and where its value goes.
type field struct {
	name  string // with the sections around it, below the one that the field is listed for
	value reflect.Value
	tag   reflect.StructTag
}

// fieldsOf returns the keys of a section, also those in sections below it. A key hides those of an embedded struct with its name.
func fieldsOf(section reflect.Value) (all []field) {
	var embedded []field
	for i := range section.NumField() {
		f, v := section.Type().Field(i), section.Field(i)
		switch name := f.Tag.Get("yaml"); {
		case f.Anonymous || name == ",inline":
			embedded = append(embedded, fieldsOf(v)...)
		case name != "" && hasKeys(v):
			for _, below := range fieldsOf(v) {
				all = append(all, field{name + "." + below.name, below.value, below.tag})
			}
		case name != "":
			all = append(all, field{name, v, f.Tag})
		}
	}
	for _, e := range embedded {
		if !slices.ContainsFunc(all, func(own field) bool { return e.name == own.name || strings.HasPrefix(e.name, own.name+".") }) {
			all = append(all, e)
		}
	}
	return all
}

// hasKeys reports whether a value is a section. Other structs, such as a time, are single values.
func hasKeys(v reflect.Value) bool { return v.Kind() == reflect.Struct && len(fieldsOf(v)) > 0 }

// keysOf returns the keys of a section, without those below them.
func keysOf(fields []field) (keys []string) {
	for _, f := range fields {
		key, _, _ := strings.Cut(f.name, ".")
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// under returns the fields of one key: a field without a name has its value, others belong to the section that it is.
func under(fields []field, key string) (all []field) {
	for _, f := range fields {
		if first, rest, _ := strings.Cut(f.name, "."); first == key {
			all = append(all, field{rest, f.value, f.tag})
		}
	}
	return all
}

// shortOf returns the field for a single value in place of a section; nil: there is none.
func shortOf(fields []field) *field {
	for _, f := range fields {
		if _, short := f.tag.Lookup("short"); short && !strings.Contains(f.name, ".") {
			return &f
		}
	}
	return nil
}

// section reads keys with values. An empty section counts as missing.
func (r *reader) section(path string, n *yaml.Node, fields []field) {
	if short, v := shortOf(fields), resolveAlias(n); short != nil && v.Kind == yaml.ScalarNode && !isNull(v) {
		r.value(path, n, *short)
		return
	}
	r.pairs(path, n, func(key, v *yaml.Node, name string) {
		switch found := under(fields, name); {
		case len(found) == 0:
			r.add(key, path, "unknown key "+quote(name), suggest(name, keysOf(fields)))
		case found[0].name == "":
			r.value(join(path, name), v, found[0])
		default:
			r.section(join(path, name), v, found)
		}
	})
}

// entries reads keys of any name.
func (r *reader) entries(path string, n *yaml.Node, each func(path, name string, n *yaml.Node)) {
	r.pairs(path, n, func(key, v *yaml.Node, name string) {
		if name == "" || strings.TrimSpace(name) != name || strings.ContainsFunc(name, unicode.IsControl) {
			r.add(key, path, quote(name)+" cannot be a name", "use one without control characters or space at either end")
			return
		}
		each(join(path, name), name, v)
	})
}

// value reads the value of a field. A value that is refused leaves the field as it is, or an entry of a list empty.
func (r *reader) value(path string, n *yaml.Node, f field) {
	r.at[path] = n
	v := resolveAlias(n)
	if to, is := f.value.Addr().Interface().(*mapping.Values); is {
		r.anyOf(path, n, to, f.tag)
		return
	}
	_, none := f.tag.Lookup("none")
	switch s := scalarOf(f); {
	case s != nil:
		r.scalar(path, n, s)
	case none && isNull(v):
		r.refuse(path, n, "has no value", "describe it, or write none")
	case isNull(v), none && v.Kind == yaml.ScalarNode && (v.Value == "none" || v.Value == "no"):
	case f.value.Kind() == reflect.Pointer:
		f.value.Set(reflect.New(f.value.Type().Elem()))
		r.section(path, n, fieldsOf(f.value.Elem()))
	case f.value.Kind() == reflect.Struct:
		r.section(path, n, fieldsOf(f.value))
	case f.value.Kind() == reflect.Map:
		r.table(path, n, f)
	default:
		r.list(path, n, f)
	}
}

// anyOf reads what a condition accepts: a constant, a list of constants, or {not: …} with one of the two.
func (r *reader) anyOf(path string, n *yaml.Node, to *mapping.Values, tag reflect.StructTag) {
	v := resolveAlias(n)
	if v.Kind == yaml.MappingNode && len(v.Content) == 2 && v.Content[0].Value == "not" {
		to.Not, n = true, v.Content[1]
		v = resolveAlias(n)
	}
	list := []*yaml.Node{n}
	if v.Kind == yaml.SequenceNode {
		list = v.Content
	}
	if len(list) == 0 {
		r.refuse(path, n, "the list is empty", "list the values, or remove the key")
	}
	for _, n := range list {
		var one mapping.Value
		r.value(path, n, field{"", reflect.ValueOf(&one).Elem(), tag})
		to.Any = append(to.Any, one)
	}
}

// table reads keys of any name into a map.
func (r *reader) table(path string, n *yaml.Node, f field) {
	if f.value.IsNil() {
		f.value.Set(reflect.MakeMap(f.value.Type()))
	}
	r.entries(path, n, func(path, name string, n *yaml.Node) {
		v := reflect.New(f.value.Type().Elem()).Elem()
		if r.value(path, n, field{"", v, f.tag}); !r.bad[path] {
			f.value.SetMapIndex(reflect.ValueOf(name), v)
		}
	})
}

// list reads a list, a single entry of one, or keys with values.
func (r *reader) list(path string, n *yaml.Node, f field) {
	add := func(path string, n *yaml.Node, name string) {
		entry := reflect.New(f.value.Type().Elem()).Elem()
		switch to := entry; {
		case name != "":
			to.Field(0).SetString(name)
			if r.value(path, n, field{"", to.Field(1), f.tag}); r.bad[path] {
				return
			}
		case to.Kind() == reflect.Pointer: // an empty entry is none that is nil
			to.Set(reflect.New(to.Type().Elem()))
			r.value(path, n, field{"", to.Elem(), f.tag})
		default:
			r.value(path, n, field{"", to, f.tag})
		}
		f.value.Set(reflect.Append(f.value, entry))
	}
	_, keyed := f.tag.Lookup("keyed")
	_, one := f.tag.Lookup("one")
	v := resolveAlias(n)
	if keyed {
		r.entries(path, n, func(path, name string, n *yaml.Node) { add(path, n, name) })
		return
	}
	switch {
	case v.Kind == yaml.SequenceNode:
		f.value.SetZero() // it replaces the list of the defaults
		for i, n := range v.Content {
			at := path + "[" + strconv.Itoa(i) + "]"
			if one && f.value.Type().Elem().Kind() != reflect.String {
				at = mapping.ListPath(path, i)
			}
			add(at, n, "")
		}
	case one:
		add(path, n, "")
	default:
		r.refuse(path, n, "want a list, found "+describe(v), "write it as "+cmp.Or(f.tag.Get("example"), "[a, b]"))
	}
}

// scalar is how a single value is read.
type scalar struct {
	want, hint string // the kind of the value, and how to fix a wrong one
	null       bool   // it may be null
	// parse stores the value, or returns what is wrong with it, and how to fix it if hint does not say so.
	parse func(raw *yaml.Node) (wrong, do string)
}

func (r *reader) scalar(path string, n *yaml.Node, s *scalar) {
	switch v := resolveAlias(n); {
	case s.null && isNull(v):
	case v.Kind != yaml.ScalarNode:
		r.refuse(path, n, "want "+s.want+", found "+describe(v), s.hint)
	case isNull(v):
		r.refuse(path, n, "has no value", s.hint+", or remove the key")
	default:
		if wrong, do := s.parse(v); wrong != "" {
			r.refuse(path, n, wrong, cmp.Or(do, s.hint))
		}
	}
}

// scalarOf returns how the single value of a field is read; nil: the field has no single value.
func scalarOf(f field) *scalar {
	switch to := f.value.Addr().Interface().(type) {
	case *time.Duration:
		return &scalar{want: "a duration", hint: durationHint, parse: parsed(to, ParseDuration)}
	case *orNever:
		return &scalar{want: "a duration", hint: durationHint, parse: parsed(to, parseOrNever)}
	case *time.Time:
		return &scalar{want: "a moment", hint: "write a moment with its time zone, such as 2026-11-20T00:00:00+08:00", parse: parsed(to, parseMoment)}
	case *word:
		return &scalar{want: "a value", hint: wordHint, parse: to.parse}
	case *mapping.Value:
		return constantOf(to, f.tag)
	}
	switch f.value.Kind() {
	case reflect.Int:
		return integerOf(f)
	case reflect.Bool:
		return &scalar{want: "true or false", hint: "write true or false", parse: func(raw *yaml.Node) (wrong, do string) {
			if raw.ShortTag() != "!!bool" || raw.Decode(f.value.Addr().Interface()) != nil {
				wrong = quote(raw.Value) + " is neither true nor false"
			}
			return wrong, ""
		}}
	case reflect.String:
		if words := strings.Fields(f.tag.Get("enum")); len(words) > 0 {
			return wordOf(f, words)
		}
		return textOf(f)
	}
	return nil
}

// parsed returns a parse that stores what a function makes of the text.
func parsed[T any](to *T, parse func(string) (T, error)) func(raw *yaml.Node) (wrong, do string) {
	return func(raw *yaml.Node) (wrong, do string) {
		v, err := parse(raw.Value)
		if err != nil {
			return err.Error(), ""
		}
		*to = v
		return "", ""
	}
}

func parseMoment(text string) (time.Time, error) {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		err = fmt.Errorf("%s is not a moment with a time zone", quote(text))
	}
	return at, err
}

// constantOf reads a whole number, or a text; in conditions also null, and any decimal number.
func constantOf(to *mapping.Value, tag reflect.StructTag) *scalar {
	what, kind := "a status", tag.Get("keyed")
	if _, keyed := tag.Lookup("keyed"); keyed {
		what = "a constant"
	}
	return &scalar{want: what, hint: "write a whole number, or text in quotes", null: kind != "", parse: func(raw *yaml.Node) (wrong, do string) {
		i, whole := wholeOf(raw)
		switch tag := raw.ShortTag(); {
		case tag == "!!str" && raw.Value != "":
			*to = mapping.TextValue(raw.Value)
		case whole:
			*to = mapping.IntValue(i)
		case tag == "!!float" && kind != "" && mapping.IsDecimal(raw.Value):
			*to = mapping.Value{Text: raw.Value, Number: true}
		default:
			wrong = quote(raw.Value) + " is not " + what
		}
		return wrong, ""
	}}
}

func integerOf(f field) *scalar {
	low, _ := strconv.Atoi(f.tag.Get("min"))
	high, _ := strconv.Atoi(f.tag.Get("max"))
	return &scalar{want: "a whole number", hint: fmt.Sprintf("write one from %d to %d", low, high), parse: func(raw *yaml.Node) (wrong, do string) {
		switch i, whole := wholeOf(raw); {
		case !whole:
			return quote(raw.Value) + " is not a whole number", ""
		case i < int64(low) || i > int64(high):
			return raw.Value + " is out of range", ""
		default:
			f.value.SetInt(i)
		}
		return "", ""
	}}
}

// wholeOf reads a whole number in its usual digits. YAML reads 010 as 8, and a person may mean 10.
func wholeOf(raw *yaml.Node) (i int64, ok bool) {
	i, err := strconv.ParseInt(raw.Value, 10, 64)
	return i, err == nil && raw.ShortTag() == "!!int" && strconv.FormatInt(i, 10) == raw.Value
}

// wordOf reads one of several words.
func wordOf(f field, words []string) *scalar {
	first, last := strings.Join(words[:len(words)-1], ", "), words[len(words)-1]
	return &scalar{want: "a word", hint: "write " + first + " or " + last, parse: func(raw *yaml.Node) (wrong, do string) {
		if !slices.Contains(words, raw.Value) {
			return fmt.Sprintf("%s is neither %s nor %s", quote(raw.Value), first, last), ""
		}
		f.value.SetString(raw.Value)
		return "", ""
	}}
}

// texts check a text with the tag is. They return what is wrong with it, and how to fix it.
var texts = map[string]func(text string) (wrong, do string){
	"url": func(text string) (wrong, do string) {
		return reason(signature.CheckURL(text)), "write it such as https://shop.example/orderclose/close"
	},
	"zone": func(text string) (wrong, do string) {
		_, err := mapping.ParseZone(text)
		return reason(err), "write UTC, an offset such as +08:00, or a name such as Asia/Shanghai"
	},
	"refusal": func(text string) (wrong, do string) {
		if known := Acceptable(); !slices.Contains(known, text) {
			return quote(text) + " is no name of a refusal", suggest(text, known)
		}
		return "", ""
	},
}

func reason(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func textOf(f field) *scalar {
	return &scalar{want: "text", hint: "write it in quotes", parse: func(raw *yaml.Node) (wrong, do string) {
		if raw.ShortTag() != "!!str" {
			return raw.Value + " is read as a value other than text", fmt.Sprintf("write it in quotes, %q", raw.Value)
		}
		if is := f.tag.Get("is"); is != "" {
			if wrong, do := texts[is](raw.Value); wrong != "" {
				return wrong, do
			}
		}
		f.value.SetString(raw.Value)
		return "", ""
	}}
}
