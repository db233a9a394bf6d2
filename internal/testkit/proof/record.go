package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"
)

// recordFile has the result of the last make test-all, between two comments.
const recordFile = "docs/reliability.md"

const recordBegin, recordEnd = "<!-- make test-all writes this -->\n", "<!-- until here -->\n"

// record is the result of a make test-all that has passed.
type record struct {
	commit string
	began  time.Time
	took   time.Duration
	steps  []step
}

// String returns the result as Markdown.
func (r record) String() string {
	var steps []string
	for _, s := range r.steps {
		steps = append(steps, fmt.Sprintf("%s %.0f", s.name, s.took.Seconds()))
	}
	return fmt.Sprintf("The last `make test-all` that has passed: commit `%s`, %s, %.1f minutes. Seconds of its steps:\n%s.\n",
		r.commit, r.began.UTC().Format(time.DateOnly), r.took.Minutes(), strings.Join(steps, ", "))
}

// write replaces the result in docs/reliability.md.
func (r record) write() error {
	head, _, tail, err := readRecord()
	if err != nil {
		return err
	}
	return os.WriteFile(recordFile, []byte(head+r.String()+tail), 0o644)
}

// readRecord returns the result in docs/reliability.md, and what is before and behind it.
func readRecord() (head, text, tail string, err error) {
	all, err := os.ReadFile(recordFile)
	if err != nil {
		return "", "", "", err
	}
	head, rest, begins := strings.Cut(string(all), recordBegin)
	text, tail, ends := strings.Cut(rest, recordEnd)
	if !begins || !ends {
		return "", "", "", fmt.Errorf("%s has no %q with %q behind it", recordFile, recordBegin, recordEnd)
	}
	return head + recordBegin, text, recordEnd + tail, nil
}

var recordedCommit = regexp.MustCompile("commit `([0-9a-f]+)`")

// lastCommit returns the commit of the result in docs/reliability.md.
func lastCommit() (string, error) {
	_, text, _, err := readRecord()
	if err != nil {
		return "", err
	}
	found := recordedCommit.FindStringSubmatch(text)
	if found == nil {
		return "", fmt.Errorf("%s names no commit of make test-all", recordFile)
	}
	return found[1], nil
}
