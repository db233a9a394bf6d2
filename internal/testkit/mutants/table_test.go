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
	says  string        // output line of the test
}

// table collects verdicts. It is safe for concurrent use.
type table struct {
	mu    sync.Mutex
	rows  []row
	built time.Duration // how long all builds took
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

// print writes a line for each mutant, sorted by package and name, and a summary. onlyAll reports whether only make test-all plays the test of a mutant.
func (t *table) print(w io.Writer, onlyAll func(mutant) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.rows) == 0 {
		return
	}
	slices.SortFunc(t.rows, func(a, b row) int {
		return strings.Compare(a.pkg+"\x00"+a.name, b.pkg+"\x00"+b.name)
	})
	var slowest time.Duration
	var late []string
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "slug\tmutant\tcaught by\tin make\tafter\tsays")
	for _, r := range t.rows {
		ring := "test"
		if onlyAll(r.mutant) {
			ring, late = "test-all", append(late, r.slug)
		}
		fmt.Fprintf(out, "%s\t%s\t%s %s\t%s\t%.2f s\t%s\n", r.slug, r.name, r.pkg, r.verdict.test, ring, r.after.Seconds(), r.verdict.says)
		slowest = max(slowest, r.after)
	}
	out.Flush()
	fmt.Fprintf(w, "%d mutants; the builds took %.0f s, the slowest test %.2f s\n", len(t.rows), t.built.Seconds(), slowest.Seconds())
	fmt.Fprintf(w, "%d are caught in make test-all only: %s\n", len(late), strings.Join(late, " "))
}
