package mutants

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"
)

// verdict is the result of one mutant.
type verdict struct {
	test  string        // the test that failed, or why none did
	after time.Duration // run time of the test program
	built time.Duration // build time
	says  string        // output line of the test
}

// table collects verdicts. It is safe for concurrent use.
type table struct {
	mu   sync.Mutex
	rows []row
}

type row struct {
	mutant
	verdict
}

func (t *table) add(m mutant, v verdict) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rows = append(t.rows, row{m, v})
}

// print writes a line for each mutant, sorted by package and name, and a summary.
func (t *table) print(w io.Writer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.rows) == 0 {
		return
	}
	slices.SortFunc(t.rows, func(a, b row) int {
		return strings.Compare(a.pkg+"\x00"+a.name, b.pkg+"\x00"+b.name)
	})
	var slowest, building time.Duration
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "mutant\tcaught by\tafter\tsays")
	for _, r := range t.rows {
		fmt.Fprintf(out, "%s\t%s %s\t%.2f s\t%s\n", r.name, r.pkg, r.test, r.after.Seconds(), r.verdict.says)
		slowest, building = max(slowest, r.after), building+r.built
	}
	out.Flush()
	fmt.Fprintf(w, "%d mutants; the slowest test took %.2f s, all builds %.0f s\n", len(t.rows), slowest.Seconds(), building.Seconds())
}
