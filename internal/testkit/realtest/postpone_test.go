package realtest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// The orders of a category are postponed while their records are on their way, half of them through
// the outbox, and while some are paid. No closer runs until then, so that the test needs no fast
// machine.
func TestReal_PostponedOrdersCloseAtTheirNewDueTimes(t *testing.T) {
	r := parallelRig(t)
	r.useOutbox()
	r.start("relay", "outbox")
	plan := filepath.Join(t.TempDir(), "plan.jsonl")
	var sum ops.PostponeSummary
	var outcome, again ops.PostponeOutcome
	r.load(21, 60, time.Second, func() {
		r.created(60)
		r.decode(r.must("postpone", "--category", "physical", "--due-before", time.Now().Add(time.Hour).UTC().Format(time.RFC3339),
			"--by", "3s", "--plan", plan, "-o", "json"), &sum)
		r.decode(r.must("postpone", "--plan", plan, "--yes", "-o", "json"), &outcome)
		r.decode(r.must("postpone", "--plan", plan, "--yes", "-o", "json"), &again)
		r.start("closer")
	})
	if sum.Orders == 0 || sum.OtherCategories == 0 || outcome.Postponed == 0 || outcome.Postponed+outcome.NotOpen != sum.Orders ||
		again.Postponed != 0 || again.Moved != 0 {
		t.Errorf("planned %+v, postponed %+v, then %+v", sum, outcome, again)
	}
	r.settle()
	r.drain()
	r.check()
	content := must.Get(os.ReadFile(plan))(t)
	closed := 0
	for line := range strings.Lines(string(content)) {
		var l struct {
			ID  string
			Due time.Time
		}
		must.Do(t, json.Unmarshal([]byte(line), &l))
		for _, due := range r.texts("SELECT CONCAT(due) FROM receipts WHERE order_id = ? AND closed_at >= due", l.ID) {
			want := l.Due.Add(3 * time.Second).UTC().Format("2006-01-02 15:04:05.000")
			expect.That(t, due == want, "order %s was closed as due at %s, want %s", l.ID, due, want)
			closed++
		}
	}
	expect.That(t, closed != 0, "no postponed order was closed")
}
