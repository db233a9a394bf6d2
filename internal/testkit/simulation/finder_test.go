package simulation

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/ring"
)

// plantedFaults are mistakes of the product as random worlds have found them. Each replaces a piece of code that occurs once in its file.
var plantedFaults = []struct {
	name, file, old, new string
	says                 string // part of a violation, so that the worlds fail for the right reason
}{
	{
		"the relay commits before the ack", "delayrelay/forward.go",
		"		h.send(h.o.CloseTopic, toClose, from, h.handleForwarded)\n",
		"		for _, r := range toClose {\n			h.loop.Done(r.Offset)\n		}\n		h.loop.Commit()\n" +
			"		h.send(h.o.CloseTopic, toClose, from, h.handleForwarded)\n",
		"committed before they were done",
	},
	{
		"hops go to the smallest bucket", "delayrelay/decide.go",
		"o.Buckets.Pick(milliseconds(due - now)).Topic", "o.Buckets[0].Topic",
		"failed: hops",
	},
	{
		"receipts do not say what came back", "internal/store/closing.go",
		"c.receipts(returned)", "c.receipts(nil)",
		"gave back 0",
	},
	{
		"the next owner of a partition skips records that were read and not done", "internal/partition/watermark.go",
		"n < len(w.open) && w.open[n].done", "n < len(w.open)",
		"committed before they were done",
	},
	{
		"the dispatcher deletes rows that Kafka did not accept", "outbox/publish.go",
		"			b.refuse(m, partition.CauseRefused, errors.Join(r.Err, err))\n		}\n", "			b.refuse(m, partition.CauseRefused, errors.Join(r.Err, err))\n" +
			"		}\n		b.ack(sent.Left)\n",
		"added to the outbox and are neither there nor in any topic",
	},
}

// markers are the comments of package mutants.
var markers = regexp.MustCompile(` *//mutant:\S+`)

// finderSeeds is the number of worlds of which one must find a planted fault. The first fault needs the most, about 20.
// Each takes a build of half a minute and seconds of worlds.
const finderSeeds = "150"

// TestChaos_FindsPlantedFaults tests the random worlds themselves: they find each planted fault.
func TestChaos_FindsPlantedFaults(t *testing.T) {
	root := must.Get(filepath.Abs("../../.."))(t)
	for _, f := range plantedFaults {
		t.Run(f.name, func(t *testing.T) {
			file := filepath.Join(root, f.file)
			code := markers.ReplaceAllString(string(must.Get(os.ReadFile(file))(t)), "")
			n := strings.Count(code, f.old)
			must.That(t, n == 1, "%s has %d times the code that this fault replaces: change the fault so that it fits the present code\n%s", f.file, n, f.old)
			ring.OnlyAll(t, "make mutants plants such faults, and a test of their package fails")
			dir := t.TempDir()
			write := func(name string, data []byte) string {
				path := filepath.Join(dir, name)
				must.Do(t, os.WriteFile(path, data, 0o600))
				return path
			}
			faulty := write("faulty.go", []byte(strings.Replace(code, f.old, f.new, 1)))
			overlay := must.Get(json.Marshal(map[string]any{"Replace": map[string]string{file: faulty}}))(t)
			binary := filepath.Join(dir, "chaos.test")
			build := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-overlay", write("overlay.json", overlay), "-o", binary, ".")
			out, err := build.CombinedOutput()
			must.That(t, err == nil, "%v\n%s", err, out)
			worlds := exec.CommandContext(t.Context(), binary)
			worlds.Env = append(os.Environ(), "CHAOS=drive", "SEEDS="+finderSeeds, "STOP=1", "SHRINK=0")
			if out, err := worlds.CombinedOutput(); err == nil || !strings.Contains(string(out), f.says) {
				t.Errorf("%s worlds did not find the fault %q: %v\n%s", finderSeeds, f.says, err, out)
			} else {
				t.Logf("%s", out)
			}
		})
	}
}
