package config

import (
	"fmt"
	"regexp"
	"strings"
)

// maxTopicName is Kafka's limit for the length of a topic name, in bytes.
const maxTopicName = 249

// checkNames checks that Kafka accepts every topic name and that all names differ.
func (r *reader) checkNames(s *settings) {
	prefix := s.Topics.Prefix
	r.checkLetters("topics.prefix", prefix)
	for _, name := range s.fixedNames() {
		r.checkName(name.key, prefix, *name.at)
	}
	r.checkName(fixed, prefix, strings.TrimPrefix(s.longestDelay(), prefix))
	if !r.anyBad("topics") {
		r.checkDistinct(s)
	}
}

// fixedNames returns the names of the topics that are no delay topics, those of rooms last.
func (s *settings) fixedNames() []topicName {
	all := s.Topics.all()
	fixed := all[:len(all)-1]
	for _, room := range s.rooms {
		if room.topic != nil && !room.foreign {
			fixed = append(fixed, topicName{room.key + ".topic", room.topic})
		}
	}
	return fixed
}

// names returns everything of which the names of topics consist.
func (s *settings) names() []topicName {
	return append(s.fixedNames(), topicName{"topics.prefix", &s.Topics.Prefix})
}

// longestDelay returns the longest name of a delay topic.
func (s *settings) longestDelay() string {
	longest := s.topicOf(minBucket)
	for _, b := range s.buckets {
		if name := s.topicOf(b.length); len(name) > len(longest) {
			longest = name
		}
	}
	return longest
}

// kafkaRefuses matches a character that Kafka refuses in a topic name.
var kafkaRefuses = regexp.MustCompile(`[^a-zA-Z0-9._-]`)

// checkLetters reports characters that Kafka refuses in a topic name.
func (r *reader) checkLetters(path, name string) {
	if r.bad[path] {
		return
	}
	if c := kafkaRefuses.FindString(name); c != "" {
		r.refuse(path, r.at[path], fmt.Sprintf("%s has the letter %q, which Kafka refuses", quote(name), []rune(c)[0]),
			"use a-z, A-Z, 0-9, dot, underscore and hyphen only")
	}
}

// checkName reports a name that Kafka refuses, with the prefix in front of it.
func (r *reader) checkName(path, prefix, name string) {
	if r.checkLetters(path, name); r.bad[path] || r.bad["topics.prefix"] {
		return
	}
	switch whole := prefix + name; {
	case name == "":
		r.refuse(path, r.at[path], "the name is empty", "write one, or remove the key for the default")
	case whole == "." || whole == "..":
		r.refuse(path, r.at[path], fmt.Sprintf("Kafka refuses the name %q", whole), "use another")
	case len(whole) > maxTopicName:
		r.refuse(path, r.node(path, "topics.prefix"), fmt.Sprintf("%s has %d letters with the prefix, and Kafka takes %d", name, len(whole), maxTopicName),
			"shorten one of them")
	}
}

// checkDistinct reports topics with the same name. Kafka refuses a name that differs from
// another only by a dot in place of an underscore, because both give the same metric
// name. So these names count as equal.
func (r *reader) checkDistinct(s *settings) {
	type topic struct{ path, name string }
	var topics []topic
	for _, name := range s.fixedNames() {
		if !r.bad[name.key] {
			topics = append(topics, topic{name.key, s.Topics.Prefix + *name.at})
		}
	}
	for _, b := range s.buckets {
		if !r.bad[b.path] {
			topics = append(topics, topic{b.path, s.topicOf(b.length)})
		}
	}
	first := map[string]topic{}
	for _, t := range topics {
		key := strings.ReplaceAll(t.name, ".", "_")
		other, taken := first[key]
		if !taken {
			first[key] = t
			continue
		}
		by := other.path
		if by == fixed {
			by = "orderclose"
		}
		what := fmt.Sprintf("topic %s is already used by %s", t.name, by)
		if t.name != other.name {
			what = fmt.Sprintf("Kafka treats topic %s and the topic of %s, %s, as the same name", t.name, by, other.name)
		}
		r.refuse(t.path, r.node(t.path, other.path), what, "give each topic a name of its own")
	}
}
