package config

import (
	"fmt"
	"regexp"
)

// maxTopicName is Kafka's limit for the length of a topic name, in bytes.
const maxTopicName = 249

// checkNames checks that Kafka accepts every topic name. The names are fixed, and differ; only the prefix may be wrong.
func (r *reader) checkNames(s *settings) {
	const path = "topics.prefix"
	r.checkLetters(path, s.Topics.Prefix)
	names := []string{s.Topics.OfBucket(minBucket)}
	for _, name := range s.Topics.all() {
		names = append(names, *name)
	}
	for _, length := range s.Lengths {
		names = append(names, s.Topics.OfBucket(length))
	}
	for _, name := range names {
		if whole := s.Topics.Prefix + name; len(whole) > maxTopicName && !r.bad[path] {
			r.refuse(path, r.at[path], fmt.Sprintf("%s has %d letters with the prefix, and Kafka takes %d", name, len(whole), maxTopicName), "shorten it")
		}
	}
}

// kafkaRefuses matches a character that Kafka refuses in a topic name.
var kafkaRefuses = regexp.MustCompile(`[^a-zA-Z0-9._-]`)

// checkLetters reports characters that Kafka refuses in a topic name.
func (r *reader) checkLetters(path, name string) {
	if c := kafkaRefuses.FindString(name); c != "" {
		r.refuse(path, r.at[path], fmt.Sprintf("%s has the letter %q, which Kafka refuses", quote(name), []rune(c)[0]),
			"use a-z, A-Z, 0-9, dot, underscore and hyphen only")
	}
}
