package orderclose_test

import (
	"encoding/csv"
	"fmt"
	"go/scanner"
	"go/token"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/orderclose/orderclose/internal/testkit/must"
)

// TestSize_StaysBelowItsBudget compares the tree with docs/data/size.csv. A commit that makes the tree smaller lowers the
// row. A commit that needs more raises the row and says why.
func TestSize_StaysBelowItsBudget(t *testing.T) {
	file := must.Get(os.Open("docs/data/size.csv"))(t)
	defer file.Close()
	rows := must.Get(csv.NewReader(file).ReadAll())(t)
	for _, row := range rows[1:] {
		what, unit, command := row[0], row[2], row[3]
		most := must.Get(strconv.Atoi(row[1]))(t)
		files := must.Get(exec.CommandContext(t.Context(), "bash", "-c", command).Output())(t)
		size := 0
		for _, name := range strings.Fields(string(files)) {
			size += must.Get(measure(name, unit))(t)
		}
		t.Logf("%s: %d of %d %s", what, size, most, unit)
		if size > most {
			t.Errorf("%s: %d %s, and docs/data/size.csv allows %d: remove something, or say in the commit why it needs more",
				what, size, unit, most)
		}
	}
}

func measure(name, unit string) (int, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return 0, err
	}
	switch unit {
	case "Go tokens":
		return goTokens(name, text), nil
	case "lines":
		return strings.Count(string(text), "\n"), nil
	case "words":
		return len(strings.Fields(string(text))), nil
	}
	return 0, fmt.Errorf("docs/data/size.csv has the unknown unit %q", unit)
}

// goTokens counts tokens, because lines and comments would reward dense code. It leaves out the semicolons that the scanner
// adds at line ends.
func goTokens(name string, text []byte) int {
	var s scanner.Scanner
	s.Init(token.NewFileSet().AddFile(name, -1, len(text)), text, nil, 0)
	for count := 0; ; count++ {
		_, kind, literal := s.Scan()
		if kind == token.EOF {
			return count
		}
		if kind == token.SEMICOLON && literal == "\n" {
			count--
		}
	}
}
