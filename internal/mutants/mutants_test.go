// Package mutants is the test of the tests: it breaks the code on purpose, in a copy
// that only the compiler sees, and requires that a test fails.
//
//	make mutants                  every one of them, some minutes
//	make mutants ARGS='-run Mutants/commit'
package mutants

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// killTime is how long a test may take to notice. Bubbles take seconds, and a mutant
// may make one spin for ever.
const killTime = 3 * time.Minute

// edit replaces a piece of a file that stands there once.
type edit struct{ file, old, new string }

// mutant is code that is wrong in one way, and the test that has to notice.
type mutant struct {
	name     string
	edits    []edit
	pkg, run string
	says     string // among what the test prints, so that it fails for the right reason
}

var mutants = []mutant{
	{
		name:  "the relay commits before the ack",
		edits: []edit{{"delayrelay/partition.go", "			if !l.out.Append(lot.topic, lot.records, lot.acked) {", "			l.mark.Arrived(lot.records)\n			l.mark.Tell(time.Now(), true)\n			if !l.out.Append(lot.topic, lot.records, lot.acked) {"}},
		pkg:   "internal/bubble", run: "WhileKafkaTakesNothing", says: "committed before they were done",
	},
	{
		name:  "the closer commits before the close",
		edits: []edit{{"closer/partition.go", "	later := map[string][]orderclose.RawRecord{} // by topic\n", "	for _, e := range batch {\n		l.mark.Done(e.message.Offset)\n	}\n	l.mark.Tell(time.Now(), true)\n	later := map[string][]orderclose.RawRecord{} // by topic\n"}},
		pkg:   "internal/bubble", run: "EachFaultOfTheDatabase", says: "committed before they were done",
	},
	{
		name:  "the relay gives the memory of a fetch back before its records have left",
		edits: []edit{{"delayrelay/partition.go", "		l.readAhead() // while what is due is appended\n", "		if l.free != nil {\n			l.free()\n			l.free = nil\n		}\n		l.readAhead()\n"}},
		pkg:   "delayrelay", run: "TestRelay",
	},
	{
		name:  "the watermark passes what is not done",
		edits: []edit{{"internal/partition/watermark.go", "n < len(w.open) && w.open[n].state == done", "n < len(w.open)"}},
		pkg:   "internal/bubble", run: "MixedDelays", says: "committed before they were done",
	},
	{
		name:  "the last commit of a shutdown is left out",
		edits: []edit{{"delayrelay/partition.go", "	l.out.WaitBuried(l.mark.Arrived)\n	l.mark.Tell(time.Now(), true)\n", "	l.out.WaitBuried(l.mark.Arrived)\n"}},
		pkg:   "internal/bubble", run: "AShutdownLeavesNothing", says: "after an orderly stop",
	},
	{
		name:  "the relay forwards without looking at due",
		edits: []edit{{"delayrelay/decide.go", "if now >= due {", "if now >= 0 {"}},
		pkg:   "internal/bubble", run: "MixedDelays", says: "in the close topic before they were due",
	},
	{
		name:  "the relay goes by its own clock",
		edits: []edit{{"internal/app/app.go", "		Now:             a.clock.Now,", "		Now:             a.o.Now,"}},
		pkg:   "internal/bubble", run: "ARelayWhoseClockIsAhead", says: "in the close topic before they were due",
	},
	{
		name:  "hops go to the smallest bucket",
		edits: []edit{{"delayrelay/decide.go", "o.Buckets.Pick(milliseconds(due - now)).Topic", "o.Buckets[0].Topic"}},
		pkg:   "internal/bubble", run: "MixedDelays", says: "appends to delay topics",
	},
	{
		name:  "what cannot be read is dropped",
		edits: []edit{{"delayrelay/partition.go", "			l.out.BuryUnreadable(r, err)", "			l.mark.Done(r.Offset)"}},
		pkg:   "internal/bubble", run: "PoisonGoesToTheDeadLetters", says: "went nowhere",
	},
	{
		name:  "a dead letter does not say where its record lay",
		edits: []edit{{"deadletter.go", "	dead.add(HeaderSourceOffset, strconv.FormatInt(m.Offset, 10))\n", ""}},
		pkg:   "internal/bubble", run: "PoisonGoesToTheDeadLetters", says: "has no source-offset",
	},
	{
		name: "closing without compare-and-set",
		edits: []edit{
			{"internal/store/decide.go", "case st != stateOpen:", "case st > statePaid:"},
			{"internal/store/statements.go", "WHERE %s IN ? AND %s%s = ? AND %s <= ?", "WHERE %s IN ? AND (%s%s = ? OR 1 = 1) AND %s <= ?"},
		},
		pkg: "internal/bubble", run: "APaidOrderIsNeverClosed", says: "was paid and is closed",
	},
	{
		name: "closing before due",
		edits: []edit{
			{"internal/store/decide.go", "case due.After(now):", "case due.After(now.Add(time.Hour)):"},
			{"internal/store/statements.go", "AND %s%s = ? AND %s <= ?", "AND %s%s = ? AND (%s <= ? OR 1 = 1)"},
		},
		pkg: "internal/bubble", run: "DeadlinesMove", says: "closed before they were due",
	},
	{
		name:  "a release without its ledger row",
		edits: []edit{{"internal/store/stock.go", "		if err := in.exec(tx); err != nil {\n			return nil, fmt.Errorf(\"write the ledger", "		if err := error(nil); err != nil {\n			return nil, fmt.Errorf(\"write the ledger"}},
		pkg:   "internal/bubble", run: "ACleanRunLeaves", says: "gave back 0",
	},
	{
		name:  "stock comes back twice",
		edits: []edit{{"internal/store/stock.go", "			sums[r.SKU] += r.Quantity", "			sums[r.SKU] += r.Quantity\n			if r.SKU != \"\" && len(released) > 1 {\n				sums[r.SKU] += r.Quantity\n			}"}},
		pkg:   "internal/bubble", run: "TwoSweepsAtOnce", says: "and orders hold",
	},
	{
		name:  "a close without its event",
		edits: []edit{{"internal/store/close.go", "	if err := c.events(released); err != nil {", "	if err := error(nil); err != nil {"}},
		pkg:   "internal/bubble", run: "ACleanRunLeaves", says: "have no event",
	},
	{
		name: "the outbox deletes before it publishes",
		edits: []edit{{"internal/store/outbox.go", "	done := d.publish(ctx, rows)\n	if len(done) == 0 {\n		return nil\n	}\n",
			"	var done []int64\n	for _, r := range rows {\n		done = append(done, r.ID)\n	}\n	defer d.publish(ctx, rows)\n"}},
		pkg: "internal/bubble", run: "WithKafkaDownForAnHour", says: "have no event",
	},
	{
		name:  "an order is tried again without end",
		edits: []edit{{"closer/decide.go", "if r.Attempt < maxRetries {", "if r.Attempt >= 0 {"}},
		pkg:   "internal/bubble", run: "AnOrderThatFailsIsTriedAgain",
	},
	{
		name:  "a sweep says that a closer is behind, whatever it sees",
		edits: []edit{{"internal/cause/decide.go", "	case s.Kind == story.Dead:\n		return compensator.DeadLettered\n", "	case s.Topic != \"\":\n		return compensator.CloserBehind\n"}},
		pkg:   "internal/bubble", run: "AKafkaThatWasAway|PipelineOff|EachCause", says: "a sweep says of",
	},
	{
		name:  "a lock is not extended",
		edits: []edit{{"compensator/lock.go", "timer := time.NewTimer(l.o.Extend)", "timer := time.NewTimer(1000 * l.o.Expiry)"}},
		pkg:   "compensator", run: "TestLock",
	},
	{
		name:  "a sweep goes on when its lock is lost",
		edits: []edit{{"compensator/lock.go", "	err := work(held)\n", "	err := work(ctx)\n"}},
		pkg:   "compensator", run: "TestLock",
	},
	{
		name:  "a sweep does not leave the grace to the pipeline",
		edits: []edit{{"compensator/sweep.go", "now.Add(-c.o.Grace)", "now"}},
		pkg:   "compensator", run: "TestSweep",
	},
}

// apply writes the mutated files and what tells the compiler of them.
func (m mutant) apply(t *testing.T, root string) (overlay string) {
	t.Helper()
	dir, replace := t.TempDir(), map[string]string{}
	changed := map[string]string{}
	for _, e := range m.edits {
		path := filepath.Join(root, e.file)
		text, ok := changed[path]
		if !ok {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			text = string(data)
		}
		if n := strings.Count(text, e.old); n != 1 {
			t.Fatalf("%s has %d times what this mutant replaces: write it anew for what stands there now\n%s", e.file, n, e.old)
		}
		changed[path] = strings.Replace(text, e.old, e.new, 1)
	}
	for path, text := range changed {
		to := filepath.Join(dir, strings.ReplaceAll(filepath.Base(path), ".go", ".mutant"))
		if err := os.WriteFile(to, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		replace[path] = to
	}
	data, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	overlay = filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlay, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return overlay
}

// Each fits the code as it is; with MUTANTS=1 each is also caught.
func TestMutants_AreCaught(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			overlay := m.apply(t, root)
			if os.Getenv("MUTANTS") == "1" {
				m.mustDie(t, root, overlay)
			}
		})
	}
}

func (m mutant) mustDie(t *testing.T, root, overlay string) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "mutant.test")
	build := exec.Command("go", "test", "-c", "-overlay", overlay, "-o", program, "./"+m.pkg)
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("it does not compile, which catches nothing: %v\n%s", err, out)
	}
	ctx, cancel := context.WithTimeout(t.Context(), killTime)
	defer cancel()
	test := exec.CommandContext(ctx, program, "-test.run", m.run)
	test.Dir = filepath.Join(root, m.pkg)
	var out bytes.Buffer
	test.Stdout, test.Stderr = &out, &out
	began := time.Now()
	err := test.Run()
	text := out.String()
	switch {
	case ctx.Err() != nil:
		t.Errorf("%s did not end within %v", m.run, killTime)
	case err == nil:
		t.Errorf("nobody noticed: %s passes", m.run)
	case !strings.Contains(text, "--- FAIL") || !strings.Contains(text, m.says):
		t.Errorf("it failed for another reason than %q:\n%s", m.says, text[:min(len(text), 4000)])
	default:
		t.Logf("caught by %s after %v: %s", m.run, time.Since(began).Round(time.Millisecond), firstWord(text, m.says))
	}
}

// firstWord is the first line that says why.
func firstWord(text, says string) string {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); says != "" && strings.Contains(line, says) || says == "" && strings.Contains(line, "_test.go:") {
			return line[:min(len(line), 160)]
		}
	}
	return ""
}
