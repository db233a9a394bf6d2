package config

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// document parses data and keeps the root of the first document, or nil if there is
// none. It reports syntax errors.
func (r *reader) document(data []byte) {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var first, second yaml.Node
	switch err := dec.Decode(&first); {
	case errors.Is(err, io.EOF):
		return
	case err != nil:
		r.syntax(data, err)
		return
	}
	switch err := dec.Decode(&second); {
	case err == nil:
		r.add(&second, "", "a second document begins here", "put everything into one and remove the line ---")
	case !errors.Is(err, io.EOF):
		r.syntax(data, err)
	}
	if root := first.Content[0]; !isNull(root) {
		r.root = root
	}
}

var yamlError = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// syntax reports the error of the YAML parser, at the line that the parser names.
func (r *reader) syntax(data []byte, err error) {
	n := 0
	if m := yamlError.FindStringSubmatch(err.Error()); m != nil {
		n, _ = strconv.Atoi(m[1])
	}
	if strings.Contains(err.Error(), "did not find expected") { // in these errors the parser counts lines from 0
		n++
	}
	r.add(&yaml.Node{Line: min(n, 1+bytes.Count(data, []byte("\n"))), Column: 1}, "", "this is not YAML: "+yamlError.ReplaceAllString(err.Error(), ""),
		"save the file as UTF-8, and check indentation without tabs, colons, quotes and brackets around this line")
}
