package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// document parses data and keeps the root of the first document, or nil if there is
// none. It reports syntax errors.
func (r *reader) document(data []byte) {
	if r.bytes(data); len(r.problems) > 0 {
		return
	}
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

// bytes reports bytes that YAML does not allow, or for which the parser gives an unclear
// error: byte order marks, other encodings, control characters, tabs in the indentation.
func (r *reader) bytes(data []byte) {
	for _, mark := range []string{"\xef\xbb\xbf", "\xff\xfe", "\xfe\xff"} {
		if bytes.HasPrefix(data, []byte(mark)) {
			r.add(nil, "", "the file begins with a byte order mark", "save it as UTF-8 without one")
			return
		}
	}
	for i, line := range strings.Split(string(data), "\n") {
		if column, what, do := badByte(line); column > 0 {
			r.add(&yaml.Node{Line: i + 1, Column: column}, "", what, do)
		}
	}
}

// badByte finds the first byte of a line that bytes must report. It returns the column of the
// byte, counted in characters from 1, a description and a hint. If there is no such byte,
// column is 0.
func badByte(line string) (column int, what, do string) {
	indented := true
	for i, c := range strings.TrimSuffix(line, "\r") {
		column++
		switch _, size := utf8.DecodeRuneInString(line[i:]); {
		case c == utf8.RuneError && size == 1:
			return column, "the text is not UTF-8", "save the file as UTF-8"
		case c == '\t' && indented:
			return column, "a tab in the indentation", "indent with spaces"
		case c != '\t' && unicode.IsControl(c):
			return column, fmt.Sprintf("control character %U", c), "remove it"
		}
		indented = indented && (c == ' ' || c == '\t')
	}
	return 0, "", ""
}

var yamlError = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// syntax reports the error of the YAML parser.
func (r *reader) syntax(data []byte, err error) {
	lines := bytes.SplitAfter(data, []byte("\n"))
	n := failingLine(lines, len(data), err)
	line := lines[n-1]
	column := len(line) - len(bytes.TrimLeft(line, " ")) + 1
	r.add(&yaml.Node{Line: n, Column: column}, "", "this is not YAML: "+yamlError.ReplaceAllString(err.Error(), ""),
		"check indentation, colons, quotes and brackets up to here")
}

// failingLine returns the number of the line, from 1, at which parsing fails. It finds the
// line by parsing shorter and shorter beginnings of the file. The line in err is often
// that of the surrounding block, and sometimes wrong by one. failingLine uses that line only
// for large files, where parsing once per line would take seconds.
func failingLine(lines [][]byte, size int, err error) int {
	if len(lines)*size > 4<<20 {
		n, _ := strconv.Atoi(yamlError.FindStringSubmatch(err.Error())[1])
		return max(1, min(n, len(lines)))
	}
	n := len(lines)
	for n > 1 && !parses(bytes.Join(lines[:n-1], nil)) {
		n--
	}
	return n
}

func parses(data []byte) bool {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var n yaml.Node
		if err := dec.Decode(&n); err != nil {
			return errors.Is(err, io.EOF)
		}
	}
}
