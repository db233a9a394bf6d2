package config

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"
)

// Section is the key of topics.yaml that belongs to a room. T is a struct of values, without pointers; its field PageSize has
// the key page_size. Load and Parse read the sections that they get, and Of returns the settings.
type Section[T any] struct {
	Key      string // the name of the room
	Defaults T
	Fields   func(*T) Fields // where the value of each key goes
	// Topic returns the name of a topic of the shop, which has the key topic. It has no prefix, and must be no topic of orderclose.
	// nil: there is none.
	Topic   func(*T) *string
	Example string                     // of the section, which is valid: for errors and tests; "": the key alone
	Check   func(T) (wrong, do string) // compares the values, if the file has the section; nil: there is nothing to compare
}

// AnySection is a Section of any type, OtherRooms or WithoutKafka.
type AnySection interface {
	Keys() []string // such as intake.topic, in alphabetical order
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
	for _, key := range slices.Sorted(maps.Keys(d.Fields(new(T)))) {
		all = append(all, join(d.Key, key))
	}
	return all
}

// Sample implements AnySection.
func (d Section[T]) Sample() string { return cmp.Or(d.Example, d.Key+": {}") }

func (d Section[T]) addTo(s *settings) {
	v := d.Defaults
	room := &roomSection{key: d.Key, fields: d.Fields(&v), value: func() any { return v }}
	if d.Topic != nil {
		room.topic = d.Topic(&v)
	}
	if d.Check != nil {
		room.check = func() (string, string) { return d.Check(v) }
	}
	s.rooms = append(s.rooms, room)
}

// Address reads the URL of a service.
func Address(to *string) parser { return address(to) }

// Duration reads a duration.
func Duration(to *time.Duration) parser { return duration(to) }

// OtherRooms stands for the sections of rooms that a program does not have, which are then skipped and not refused: other
// programs read and check them.
func OtherRooms() AnySection { return otherRooms{} }

type otherRooms struct{}

func (otherRooms) Keys() []string    { return nil }
func (otherRooms) Sample() string    { return "" }
func (otherRooms) addTo(s *settings) { s.skips = true }

// WithoutKafka is for a process that has no Kafka: its file need not list the buckets. Those of a file without buckets are the
// default ones. An empty file is refused as by all: it may be one that is just being written.
func WithoutKafka() AnySection { return withoutKafka{} }

type withoutKafka struct{}

func (withoutKafka) Keys() []string    { return nil }
func (withoutKafka) Sample() string    { return "" }
func (withoutKafka) addTo(s *settings) { s.withoutKafka = true }

// roomSection is a Section that is being read.
type roomSection struct {
	key    string
	fields Fields
	topic  *string // of the shop; nil: none
	given  bool    // the file has the section
	check  func() (wrong, do string)
	value  func() any // the settings
}

func (s *roomSection) parse(r *reader, path string, n *yaml.Node) {
	s.given = true
	section(s.fields)(r, path, n)
}

// checkRoom checks a section that is in the file, and none of whose values was refused.
func (r *reader) checkRoom(s *settings, room *roomSection) {
	path := join(room.key, "topic")
	if !room.given || r.anyBad(room.key) {
		return
	}
	if room.check != nil {
		if wrong, do := room.check(); wrong != "" {
			r.refuse(room.key, r.at[room.key], wrong, do)
			return
		}
	}
	if room.topic == nil || r.at[path] == nil {
		return
	}
	r.checkLetters(path, *room.topic)
	own := s.topics()
	_, bucket := own.BucketOf(*room.topic)
	if bucket || slices.ContainsFunc(own.all(), func(name *string) bool { return *name == *room.topic }) {
		r.refuse(path, r.at[path], fmt.Sprintf("%s is a topic of orderclose", quote(*room.topic)), "name one of the shop")
	}
}
