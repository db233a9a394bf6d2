package realtest

import (
	"context"
	"fmt"
	"regexp"
	"sync"
	"testing"
)

// caseTimeout limits a rowCase. Successful ones take a few seconds on an idle machine.
const caseTimeout = 3 * waitLimit

// rowCase is the work of a part that has all rows of its table in docs/security.md, or all but one.
type rowCase struct {
	name    string
	refusal *regexp.Regexp // matches the error that names the missing row; nil: has all rows
	play    func(ctx context.Context) error
}

// playRows plays the cases, so many of them in parallel, and checks each: with all rows everything
// works; without one row it is rejected, and the error names the row.
func playRows(t *testing.T, parallel int, cases []rowCase) {
	results := make([]error, len(cases))
	var playing sync.WaitGroup
	turns := make(chan struct{}, parallel)
	for i, c := range cases {
		playing.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			ctx, cancel := context.WithTimeout(t.Context(), caseTimeout)
			defer cancel()
			results[i] = c.play(ctx)
		})
	}
	playing.Wait()
	for i, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Logf("%.8000s", fmt.Sprint(results[i]))
			switch err := results[i]; {
			case c.refusal == nil && err != nil:
				t.Errorf("it does not work: %v", err)
			case c.refusal != nil && err == nil:
				t.Error("it works")
			case c.refusal != nil && !c.refusal.MatchString(err.Error()):
				t.Errorf("the refusal does not name what is missing: %v", err)
			}
		})
	}
}
