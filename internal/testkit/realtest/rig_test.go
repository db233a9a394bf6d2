package realtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/kafka/drop"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/checker"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/process"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
	"github.com/orderclose/orderclose/internal/topics"
	"github.com/orderclose/orderclose/internal/wire"
	"github.com/orderclose/orderclose/producer"
)

// binDir is a folder for the production binary; TestMain creates and removes it.
var binDir string

// Each of these builds a program once for all tests that need it: the production binary and the example shop.
var (
	binary         = built("cmd/orderclose")
	checkoutBinary = built("examples/checkout/cmd/checkout")
)

// built returns a function that builds a program of the repository.
func built(program string) func() (string, error) {
	return sync.OnceValues(func() (string, error) {
		path := filepath.Join(binDir, filepath.Base(program))
		out, err := exec.Command("go", "build", "-C", "../../..", "-o", path, "./"+program).CombinedOutput()
		if err != nil {
			return "", fmt.Errorf("go build: %w\n%s", err, out)
		}
		return path, nil
	})
}

func TestMain(m *testing.M) {
	var err error
	if binDir, err = os.MkdirTemp("", "orderclose-bin-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(binDir)
	os.Exit(code)
}

// rig is a pipeline of processes, with a shop and names of its own on the servers.
type rig struct {
	t       *testing.T
	servers environ.Servers
	prefix  string
	file    string // its topics.yaml
	cfg     *config.Config
	store   *store.Store
	kafka   *kafka.Cluster
	shop    *scenario.Shop
	logs    *testkit.LogBuffer
	secured *secured // nil: the broker has no access control
	env     []string // environment of the processes, in addition to the servers
	program string   // path of the orderclose that commands and processes run; empty: binary
	// extra returns additional environment of the binary, by its arguments.
	extra func(args []string) []string
	// disturbed: a part was killed, or did not run, while orders were due.
	disturbed bool
	causes    string // words of a violation that the test causes; "": none
	// dispatching: all events were dispatched; see drain.
	dispatching bool

	mu        sync.Mutex
	processes map[string]*process.Process
}

// newRig creates topics and a schema of its own on the servers.
func newRig(t *testing.T, s environ.Servers) *rig {
	t.Helper()
	return newRigIn(t, s, newPrefix(), nil)
}

// newPrefix returns the prefix of all names of a rig.
func newPrefix() string { return "oc_" + strings.ToLower(rand.Text()[:10]) + "_" }

// parallelRig is newRig for a test that runs on one database, in parallel with others.
func parallelRig(t *testing.T) *rig {
	t.Helper()
	s := realServers(t)
	t.Parallel()
	return newRig(t, s)
}

// database returns the name of the rig's database.
func (r *rig) database() string { return strings.TrimSuffix(r.prefix, "_") }

// newRigIn is newRig with a given prefix, on a secured broker if secured is set: s.Brokers and s.Kafka are then the access of its super user.
func newRigIn(t *testing.T, s environ.Servers, prefix string, secured *secured) *rig {
	t.Helper()
	r := newBareRig(t, s, prefix, "")
	r.secured = secured
	r.prepare()
	return r
}

// newRigBy is newRig with the program of another version.
func newRigBy(t *testing.T, s environ.Servers, program string) *rig {
	t.Helper()
	r := newBareRig(t, s, newPrefix(), "")
	r.program = program
	r.prepare()
	return r
}

// prepare creates topics and schema, by the commands if a program is given, and opens the shop.
func (r *rig) prepare() {
	r.t.Helper()
	r.store = must.Get(store.Open(store.Options{DSN: r.servers.DSN}))(r.t)
	r.t.Cleanup(func() { r.store.Close() })
	if r.program != "" {
		r.must("topics", "apply")
		r.must("migrate")
	} else {
		r.makeTopics()
		r.eventually(func() error { return r.store.Migrate(r.t.Context()) })
	}
	r.openShop()
}

// makeTopics does what orderclose topics apply does, in this process.
func (r *rig) makeTopics() {
	r.t.Helper()
	must.Do(r.t, apply(r.t.Context(), r.kafka, topics.Specs(r.cfg)))
}

// apply creates topics, and repeats what a busy broker does not answer.
func apply(ctx context.Context, admin *kafka.Cluster, specs []kafka.TopicSpec) error {
	return insist(ctx, func() error {
		_, _, err := admin.Apply(ctx, specs)
		return err
	})
}

// newBareRig is a rig without topics, tables and a shop. settings come at the end of its topics.yaml.
func newBareRig(t *testing.T, s environ.Servers, prefix, settings string) *rig {
	t.Helper()
	r := &rig{t: t, servers: s, prefix: prefix, logs: &testkit.LogBuffer{}, processes: map[string]*process.Process{}}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the end of the logs of the processes:\n%s", r.logs.Tail(6_000))
		}
	})
	dsn, drop, err := scenario.CreateDatabase(t.Context(), s.DSN, nil, r.database())
	must.Do(t, err)
	t.Cleanup(func() { r.clean(drop) })
	r.servers.DSN = dsn
	r.file = filepath.Join(t.TempDir(), "topics.yaml")
	must.Do(t, os.WriteFile(r.file, []byte(scenario.Topics(r.prefix, min(len(s.Brokers), 3))+settings), 0o600))
	r.readConfig()
	r.kafka = must.Get(kafka.New(kafka.Options{Brokers: s.Brokers, Security: s.Kafka}))(t)
	t.Cleanup(r.kafka.Close)
	t.Cleanup(func() { r.clean(r.dropTopics) })
	t.Cleanup(r.killAll)
	return r
}

func (r *rig) openShop() {
	o := producer.Options{Brokers: r.servers.Brokers, TopicsFile: r.file, Timeout: waitLimit, Logger: slog.New(slog.DiscardHandler)}
	if r.secured != nil {
		r.secured.producer(&o)
	}
	p := must.Get(producer.New(o))(r.t)
	r.t.Cleanup(p.Close)
	r.shop = &scenario.Shop{Orders: scenario.Persistent{Orders: scenario.OrdersOf(r.store)}, Producer: p}
	must.Do(r.t, r.shop.Stock(r.t.Context(), skus))
}

// skus is the number of SKUs that the shop sells.
const skus = 20

// waitLimit is how long a test waits for what must happen. It does not measure speed: on a busy machine everything takes many times longer.
const waitLimit = 2 * time.Minute

// await calls try until it succeeds. The test fails with the last error after waitLimit. A waiting helper waits for a fact by it, never for a time.
func await(t *testing.T, try func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), waitLimit)
	defer cancel()
	err := process.Await(ctx, func(context.Context) error { return try() })
	must.That(t, err == nil, "after %v: %v", waitLimit, err)
}

func (r *rig) clean(f func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	expect.NoError(r.t, f(ctx))
}

func (r *rig) dropTopics(ctx context.Context) error {
	// A busy broker may need longer than one request has.
	return process.Await(ctx, func(ctx context.Context) error { return drop.Topics(ctx, r.kafka, scenario.TopicNames(r.cfg)...) })
}

// edit replaces the rig's topics.yaml by a rename.
func (r *rig) edit(change func(text string) string) {
	r.t.Helper()
	text := readFile(r.t, r.file)
	err := os.WriteFile(r.file+".new", []byte(change(text)), 0o600)
	if err == nil {
		err = os.Rename(r.file+".new", r.file)
	}
	must.Do(r.t, err)
}

// rewrite replaces texts of the rig's topics.yaml.
func (r *rig) rewrite(pairs ...string) {
	r.t.Helper()
	r.edit(strings.NewReplacer(pairs...).Replace)
}

// configure adds text to the rig's topics.yaml.
func (r *rig) configure(text string) {
	r.t.Helper()
	r.edit(func(before string) string { return before + text })
	r.readConfig()
}

// readConfig reads the topics.yaml again that a test has changed.
func (r *rig) readConfig() {
	r.t.Helper()
	r.cfg = must.Get(config.Load(r.file))(r.t)
}

// append appends the messages to a partition. While a busy broker does not answer in time, append sends them again. They are written once.
func (r *rig) append(topic string, partition int, messages ...wire.Message) {
	r.t.Helper()
	records := make([]wire.RawRecord, len(messages))
	for i, m := range messages {
		records[i] = m.Raw()
	}
	write := r.kafka.Idempotent(nil)
	r.eventually(func() error { // a broker that has just started has no producer ids yet
		_, err := write(r.t.Context(), topic, partition, records)
		return err
	})
}

// eventually calls try until it succeeds, as await does.
func (r *rig) eventually(try func() error) {
	r.t.Helper()
	await(r.t, try)
}

// until waits for a condition.
func (r *rig) until(what string, is func() bool) {
	r.t.Helper()
	r.eventually(func() error {
		if !is() {
			return fmt.Errorf("this did not happen: %s", what)
		}
		return nil
	})
}

// created waits until the shop has created that many orders. A test disturbs a load by it: when a process is killed does not
// depend on how fast the machine is.
func (r *rig) created(n int) {
	r.t.Helper()
	r.eventually(func() error { return atLeast("created orders", len(r.shop.Created()), n) })
}

// atLeast returns an error while a count is below n.
func atLeast(what string, got, n int) error {
	if got < n {
		return fmt.Errorf("%d %s, want %d", got, what, n)
	}
	return nil
}

// publishedAreClosed waits until the pipeline has closed every order that was published. Those that were never published stay open if nothing sweeps.
func (r *rig) publishedAreClosed() {
	r.t.Helper()
	published := map[string]bool{}
	for _, id := range r.shop.Published() {
		published[id] = true
	}
	r.eventually(func() error {
		for _, id := range r.texts("SELECT id FROM orders WHERE status = 0") {
			if published[id] {
				return fmt.Errorf("order %s is open", id)
			}
		}
		return nil
	})
}

// environ returns the environment of the production binary when it is called with args.
func (r *rig) environ(args []string) []string {
	env := append(os.Environ(),
		environ.EnvBrokers+"="+strings.Join(r.servers.Brokers, ","),
		environ.EnvDSN+"="+r.servers.DSN,
		environ.EnvRedis+"="+r.servers.RedisURL,
		environ.EnvListen+"=127.0.0.1:0",
	)
	env = append(env, r.env...)
	if r.secured != nil {
		env = append(env, r.secured.environ(args)...)
	}
	if r.extra != nil {
		env = append(env, r.extra(args)...)
	}
	return env
}

func (r *rig) command(args ...string) *exec.Cmd {
	r.t.Helper()
	path := r.program
	if path == "" {
		path = must.Get(binary())(r.t)
	}
	if args[0] == "topics" || args[0] == "migrate" { // on a busy machine everything takes many times longer
		args = append(args[:len(args):len(args)], "--wait", waitLimit.String())
	}
	cmd := exec.Command(path, append(args, "--config", r.file)...)
	cmd.Env = r.environ(args)
	cmd.Stderr = r.logs
	return cmd
}

// cli runs a command to its end and returns its output and exit code.
func (r *rig) cli(args ...string) (stdout string, code int) {
	r.t.Helper()
	cmd := r.command(args...)
	out, err := cmd.Output()
	exit := (*exec.ExitError)(nil)
	must.That(r.t, err == nil || errors.As(err, &exit), "%v", err)
	return string(out), cmd.ProcessState.ExitCode()
}

// exitTimedOut is the exit code of a command whose server does not answer in time.
const exitTimedOut = 7

// must runs a command that has to succeed. It repeats a command while a busy server does not answer it.
func (r *rig) must(args ...string) (out string) {
	r.t.Helper()
	code := 0
	r.eventually(func() error {
		if out, code = r.cli(args...); code == exitTimedOut {
			return fmt.Errorf("orderclose %v gets no answer:\n%s", args, r.logs.Tail(2000))
		}
		return nil
	})
	if code != 0 {
		r.t.Fatalf("orderclose %v exited with %d:\n%s\n%s", args, code, out, r.logs.Tail(2000))
	}
	return out
}

// start starts each part as a process of its own. Processes of one kind have different suffixes: relay-1 and relay-2 are relays.
func (r *rig) start(parts ...string) {
	r.t.Helper()
	for _, part := range parts {
		role, _, _ := strings.Cut(part, "-")
		r.run(part, func() *exec.Cmd { return r.command("run", role) })
	}
}

// run starts a process under a name.
func (r *rig) run(name string, command func() *exec.Cmd) {
	r.t.Helper()
	p := &process.Process{Name: name, Command: command}
	must.Do(r.t, p.Start())
	r.mu.Lock()
	defer r.mu.Unlock()
	r.processes[name] = p
}

func (r *rig) process(name string) *process.Process {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.processes[name]
	must.That(r.t, p != nil, "no process %s was started", name)
	return p
}

// send sends a signal to a part's process.
func (r *rig) send(part string, s syscall.Signal) {
	r.t.Helper()
	expect.NoError(r.t, r.process(part).Signal(s))
}

// signal sends a signal to a part's process and waits for its end.
func (r *rig) signal(part string, s syscall.Signal) { _ = r.process(part).End(s, 0) }

func (r *rig) killAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.processes {
		p.Kill()
	}
}

// play runs the shop through a plan and reports its errors.
func (r *rig) play(seed uint64, orders int, over time.Duration) {
	r.t.Helper()
	steps := scenario.Plan(scenario.Spec{Seed: seed, Orders: orders, Over: over, SKUs: skus, Categories: categories})
	expect.NoError(r.t, r.shop.Run(r.t.Context(), time.Now(), steps))
}

// load runs a shop that publishes every order, and runs meanwhile in parallel. Without a compensator, each closed order came through the pipeline.
func (r *rig) load(seed uint64, orders int, over time.Duration, meanwhile func()) {
	r.t.Helper()
	r.loadWith(scenario.Spec{Seed: seed, Orders: orders, Over: over, Categories: categories}, meanwhile)
}

// categories have the delays of scenario.Topics; the last has the default.
var categories = []string{"flash-sale", "virtual", "physical", "unheard-of"}

func (r *rig) loadWith(spec scenario.Spec, meanwhile func()) {
	r.t.Helper()
	spec.SKUs = skus
	steps := scenario.Plan(spec)
	for i := range steps {
		if steps[i].Fate == scenario.Unpublished {
			steps[i].Fate = scenario.Unpaid
		}
	}
	played := make(chan error, 1)
	go func() { played <- r.shop.Run(r.t.Context(), time.Now(), steps) }()
	meanwhile()
	expect.NoError(r.t, <-played)
}

// settle waits until no order is unpaid. Closes may take as long as they need while their number falls.
func (r *rig) settle() {
	r.t.Helper()
	unpaid := func() int { return r.count("SELECT COUNT(*) FROM orders WHERE status = 0") }
	for left := unpaid(); left > 0; left = unpaid() {
		r.until(fmt.Sprintf("fewer than %d orders are unpaid, by a tenth", left), func() bool { return unpaid() <= left*9/10 })
	}
}

// useOutbox makes the shop schedule half of its orders in their own transactions.
func (r *rig) useOutbox() {
	r.t.Helper()
	r.shop.Outbox = must.Get(producer.NewOutbox(producer.OutboxOptions{Dialect: producer.Dialect(r.store.Dialect()), TopicsFile: r.file}))(r.t)
}

// drain waits until the outboxes are empty.
func (r *rig) drain() {
	r.t.Helper()
	r.dispatching = true
	r.until("the outboxes are empty", func() bool {
		return r.count("SELECT (SELECT COUNT(*) FROM outbox_events) + (SELECT COUNT(*) FROM outbox_schedules)") == 0
	})
}

// check lets the checker verify everything.
func (r *rig) check() *checker.Verdict {
	r.t.Helper()
	e := scenario.ExpectOf(r.cfg, r.shop)
	e.Calm, e.OutboxEmpty = !r.disturbed, r.dispatching
	for _, h := range must.Get(r.store.SweepHours(r.t.Context(), r.cfg.Topics.Close, time.Unix(0, 0), 1000))(r.t) {
		e.Missed += h.Missed
	}
	var v *checker.Verdict
	r.eventually(func() (err error) { // a busy server may not answer all its questions
		v, err = checker.Check(r.t.Context(), checker.Servers{DB: r.store.DB(), Brokers: r.servers.Brokers, TLS: r.servers.Kafka.TLS}, e)
		return err
	})
	for _, broken := range v.Violations {
		expect.That(r.t, r.causes != "" && strings.Contains(broken, r.causes), "%v", broken)
	}
	r.t.Logf("%d orders, %d paid, %v closed, %d events, %d repeated, lateness p50 %v p99 %v max %v",
		v.Orders, v.Paid, v.ByPath, v.Events, v.Repeated, v.Quantile(.5), v.Quantile(.99), v.Quantile(1))
	return v
}

// redisClient returns a client of the Redis that the environment names.
func (r *rig) redisClient() *redis.Client {
	r.t.Helper()
	o := must.Get(redis.ParseURL(r.servers.RedisURL))(r.t)
	c := redis.NewClient(o)
	r.t.Cleanup(func() { c.Close() })
	return c
}

// missed creates orders that are overdue and were never published.
func (r *rig) missed(n int) {
	r.t.Helper()
	for i := range n {
		must.Do(r.t, r.shop.Orders.CreateOrder(r.t.Context(), r.shop.Producer.Order(fmt.Sprint("missed-", i), time.Now().Add(-time.Hour)), nil))
	}
}

// lockKey returns the key of the lock of a compensator that runs. Its end is a digest of topics.yaml.
func (r *rig) lockKey() (key string) {
	r.t.Helper()
	client := r.redisClient()
	r.until("a compensator has the lock in Redis", func() bool {
		keys, err := client.Keys(r.t.Context(), r.cfg.Compensator.Lock.Key+"-*").Result()
		if len(keys) > 0 {
			key = keys[0]
		}
		return err == nil && key != ""
	})
	return key
}

// untilClosed waits until that many orders are closed.
func (r *rig) untilClosed(n int) {
	r.t.Helper()
	r.until(fmt.Sprint(n, " orders are closed"), func() bool { return r.count("SELECT COUNT(*) FROM receipts") >= n })
}
