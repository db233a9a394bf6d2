package realtest

import (
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/testkit/expect"
)

// instanceRig is a rig whose processes are relay and closer in one, each with an instance.
type instanceRig struct{ *rig }

// begin starts a process with an instance; "": it has none.
func (r instanceRig) begin(name, instance string) {
	r.t.Helper()
	r.run(name, func() *exec.Cmd {
		cmd := r.command("run", "relay", "closer")
		cmd.Env = append(cmd.Env, config.EnvInstance+"="+instance)
		return cmd
	})
}

// owners returns the members of the group of the smallest bucket and of that of the closers; nil if not every partition has an owner.
func (r instanceRig) owners() (members []kafka.Member) {
	b := r.cfg.Buckets[0]
	for group, topic := range map[string]string{r.cfg.RelayGroup(b): b.Topic, r.cfg.CloserGroup(): r.cfg.Topics.Close} {
		g, err := r.kafka.Group(r.t.Context(), group, topic)
		if err != nil || g.State != "Stable" {
			return nil
		}
		owned := 0
		for _, m := range g.Members {
			owned += len(m.Partitions)
		}
		if n, err := r.kafka.Partitions(r.t.Context(), topic); err != nil || owned != n {
			return nil
		}
		members = append(members, g.Members...)
	}
	return members
}

// ids returns the set of member ids.
func ids(members []kafka.Member) map[string]bool {
	set := map[string]bool{}
	for _, m := range members {
		set[m.ID] = true
	}
	return set
}

// killed kills a process under load, and starts it again. It waits until the process has all partitions of its groups back.
// Each seed makes other orders.
func (r instanceRig) killed(seed uint64, name, instance string) {
	r.t.Helper()
	r.load(seed, 300, 10*time.Second, func() {
		start := r.sent(r.cfg.Topics.Close)
		r.until("orders are due", func() bool { return r.sent(r.cfg.Topics.Close) > start+50 })
		before := ids(r.owners())
		began := time.Now()
		r.signal(name, syscall.SIGKILL)
		at := r.sent(r.cfg.Topics.Close)
		r.begin(name, instance)
		r.until("the next order is forwarded", func() bool { return r.sent(r.cfg.Topics.Close) > at })
		r.t.Logf("with the instance %q the next record is forwarded after %v", instance, time.Since(began))
		r.until("the process has its partitions back", func() bool {
			now := r.owners()
			for id := range ids(now) {
				if before[id] {
					return false
				}
			}
			return len(now) > 0
		})
		r.t.Logf("with the instance %q all partitions are served after %v", instance, time.Since(began))
	})
	r.settle()
}

// A process that is killed and started again gets its partitions back, with and without an instance. That it gets them at
// once with one, and not when its session ends, package kafka tests.
func TestReal_AnInstanceThatIsKilledGetsItsPartitionsBack(t *testing.T) {
	r := instanceRig{parallelRig(t)}
	r.disturbed = true
	r.begin("one", "")
	r.until("the process owns all partitions", func() bool { return len(r.owners()) == 2 })
	r.killed(40, "one", "")
	r.signal("one", syscall.SIGTERM)

	r.begin("one", "shop-1")
	r.until("the process owns all partitions", func() bool { return len(r.owners()) == 2 })
	r.killed(41, "one", "shop-1")
	for _, m := range r.owners() {
		expect.That(t, m.ClientID == "closer+relay@shop-1:0" && strings.HasPrefix(m.ID, "shop-1-"), "an owner is %+v", m)
	}

	// A process that was started again, and leads its groups, still assigns partitions that are added.
	r.rewrite("partitions: 4", "partitions: 6")
	r.readConfig()
	r.makeTopics()
	r.until("it owns the added partitions too", func() bool {
		n, err := r.kafka.Partitions(t.Context(), r.cfg.Topics.Close)
		return err == nil && n == 6 && len(r.owners()) == 2
	})

	// A planned stop hands over at once: when the process has ended, the groups have forgotten it.
	r.begin("two", "shop-2")
	r.until("two processes share the partitions", func() bool { return len(r.owners()) == 4 })
	r.signal("one", syscall.SIGTERM)
	r.until("the other process owns all", func() bool { return len(r.owners()) == 2 })
	for _, m := range r.owners() {
		expect.That(t, strings.HasPrefix(m.ID, "shop-2-"), "an owner is %+v", m)
	}
	r.check()
}

// Of two processes with the same instance one ends, with an exit code of its own, and says which other one it is. The other works.
func TestReal_OfTwoProcessesWithOneInstanceOneEnds(t *testing.T) {
	r := instanceRig{parallelRig(t)}
	r.disturbed = true
	r.begin("one", "shop")
	r.until("the first process owns all partitions", func() bool { return len(r.owners()) == 2 })
	r.begin("two", "shop")
	one, two := r.process("one"), r.process("two")
	r.until("the first process ends", func() bool { return one.State() != nil })
	expect.Equal(t, one.State().ExitCode(), 8, "it ended with code")
	if text := r.logs.String(); strings.Count(text, "another process has the same instance, so this one ends") != 1 ||
		!strings.Contains(text, "other_process=\"closer+relay@shop:0 at ") {
		t.Error("the log does not name the other process, once")
	}
	r.load(51, 100, 3*time.Second, func() {})
	r.settle()
	n := two.Exits()
	expect.That(t, n <= 0 && two.PID() != 0, "the second process ended too, %d times", n)
	members := r.owners()
	expect.That(t, len(members) == 2, "the owners are %+v", members)

	// Both are killed and started at the same moment: one of the two works.
	r.signal("two", syscall.SIGKILL)
	r.begin("one", "shop")
	r.begin("two", "shop")
	r.until("one of the two ends", func() bool { return (r.process("one").State() != nil) != (r.process("two").State() != nil) })
	r.load(52, 100, 3*time.Second, func() {})
	r.settle()
	a, b := r.process("one").State(), r.process("two").State()
	expect.That(t, a == nil || b == nil, "both ended: %v and %v", a, b)
	r.check()
}
