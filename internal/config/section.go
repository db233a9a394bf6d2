package config

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
)

// Section is the key of topics.yaml that belongs to a room. T is a struct whose fields have the tags of decode.go. Load and Parse read
// the sections that they get, and Of returns the settings.
type Section[T any] struct {
	Key      string // the name of the room
	Defaults T
	// Topic is the key of a topic of the shop. It has no prefix, and must be no topic of orderclose. "": there is none.
	Topic   string
	Example string                     // of the section, which is valid: for errors and tests; "": the key alone
	Check   func(T) (wrong, do string) // compares the values, if the file has the section; nil: there is nothing to compare
}

// AnySection is a Section of any type, OtherRooms or WithoutKafka.
type AnySection interface {
	Keys() []string // such as webhook.url, in alphabetical order
	Sample() string // a valid section, as a line of topics.yaml
	addTo(s *settings)
}

// Of returns the settings of a configuration: Defaults, if the file has no such section or was read without it.
func (d Section[T]) Of(c *Config) T {
	v, given := c.Rooms[d.Key].(T)
	if !given {
		v = d.Defaults
	}
	return v
}

// Keys implements AnySection.
func (d Section[T]) Keys() (all []string) {
	for _, f := range fieldsOf(reflect.ValueOf(new(T)).Elem()) {
		all = append(all, join(d.Key, f.name))
	}
	slices.Sort(all)
	return all
}

// Sample implements AnySection.
func (d Section[T]) Sample() string { return cmp.Or(d.Example, d.Key+": {}") }

func (d Section[T]) addTo(s *settings) {
	v := d.Defaults
	s.rooms = append(s.rooms, &roomSection{
		field: field{name: d.Key, value: reflect.ValueOf(&v).Elem()}, topic: d.Topic, check: func() (wrong, do string) {
			if d.Check != nil {
				wrong, do = d.Check(v)
			}
			return wrong, do
		},
	})
}

// option is no section, but says how the file is read.
type option func(s *settings)

func (option) Keys() []string      { return nil }
func (option) Sample() string      { return "" }
func (o option) addTo(s *settings) { o(s) }

// OtherRooms stands for the sections of rooms that a program does not have, which are then skipped and not refused: other
// programs read and check them.
func OtherRooms() AnySection { return option(func(s *settings) { s.skips = true }) }

// WithoutKafka is for a process that has no Kafka: its file need not list the buckets. Those of a file without buckets are the
// default ones. An empty file is refused as by all: it may be one that is just being written.
func WithoutKafka() AnySection { return option(func(s *settings) { s.withoutKafka = true }) }

// roomSection is a Section that is being read.
type roomSection struct {
	field
	topic string // the key of a topic of the shop; "": none
	given bool   // the file has the section
	check func() (wrong, do string)
}

// checkRoom checks a section that is in the file.
func (r *reader) checkRoom(s *settings, room *roomSection) {
	if !room.given {
		return
	}
	if wrong, do := room.check(); wrong != "" {
		r.refuse(room.name, r.at[room.name], wrong, do)
		return
	}
	path := join(room.name, room.topic)
	if room.topic == "" || r.at[path] == nil {
		return
	}
	name := r.rawValue(path)
	r.checkLetters(path, name)
	own := s.topics()
	_, bucket := own.BucketOf(name)
	if bucket || slices.ContainsFunc(own.all(), func(topic *string) bool { return *topic == name }) {
		r.refuse(path, r.at[path], fmt.Sprintf("%s is a topic of orderclose", quote(name)), "name one of the shop")
	}
}
