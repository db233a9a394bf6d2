package realtest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/examples/checkout/shopdb"
	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/health"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/runbook"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
	"github.com/orderclose/orderclose/internal/wire"
)

// incident is one scenario of a game day: a cause, the alerts that it makes fire, and what the runbook says to do.
type incident struct {
	name   string
	alerts []string // they fire, and end after what the runbook says was done; such as NAME/VALUE of a label, see firing
	// lasting fire too. Their expressions look back for so long that promtool tests their end.
	lasting []string
	// own, if set, starts a server of the incident's own, and stores its address in s.
	own  func(t *testing.T, s *environ.Servers) ownServers
	play func(g *game)
}

// ownServers are the servers of one incident.
type ownServers struct {
	kafka   *ownServer     // the broker, if it can be stopped
	prefix  string         // of all names
	secured *secured       // the users of the parts; nil: the broker has no access control
	read    func(may bool) // gives the relay the right to read, or takes it away
}

// TestGameDay plays each incident on real servers. Prometheus evaluates the rules on the metrics of the processes, with divided durations. The commands
// are those of the runbook: a command that the section of an alert does not have fails the test.
//
// make test-ops runs it, and sets GAMEDAY.
func TestGameDay(t *testing.T) {
	if os.Getenv("GAMEDAY") != "1" {
		t.Skip("make test-ops plays the game day")
	}
	for _, i := range incidents() {
		t.Run(strings.ReplaceAll(i.name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			g := newGame(t, i)
			i.play(g)
			g.noPage()
			for _, alert := range slices.Concat(i.alerts, i.lasting) {
				expect.That(t, g.fired[alert], "%s did not fire", alert)
			}
			for _, alert := range i.alerts {
				expect.That(t, g.ended[alert], "%s did not end", alert)
			}
		})
	}
}

// incidents returns all incidents.
func incidents() []incident {
	return slices.Concat(serviceIncidents, serverIncidents, pipelineIncidents)
}

// game is a pipeline with a Prometheus, during an incident.
type game struct {
	*rig
	alerts     []string // of the incident
	lasting    []string
	prometheus *prometheus
	own        ownServers
	bin        string // folder of the programs that commands may call
	sections   map[string]runbook.Section
	words      []string          // texts of the runbook, each followed by what it stands for here
	addresses  map[string]string // of the parts
	console    string            // host:port of the console, if it runs
	fired      map[string]bool
	ended      map[string]bool
	paged      map[string]bool // alerts that paged before somebody repaired it; nil: nobody has yet
}

func newGame(t *testing.T, i incident) *game {
	t.Helper()
	s := realServers(t)
	own := ownServers{prefix: newPrefix()}
	if i.own != nil {
		own = i.own(t, &s)
	}
	g := &game{rig: newRigIn(t, s, own.prefix, own.secured), alerts: i.alerts, lasting: i.lasting, prometheus: startPrometheus(t), own: own,
		bin: t.TempDir(), sections: map[string]runbook.Section{}, addresses: map[string]string{}, fired: map[string]bool{}, ended: map[string]bool{}}
	g.words = []string{"lock:scan_unpaid_orders", g.cfg.Compensator.Lock.Key}
	for _, s := range runbook.Sections() {
		for _, alert := range s.Alerts {
			g.sections[alert] = s
		}
	}
	for _, alert := range slices.Concat(i.alerts, i.lasting) {
		name, _, _ := strings.Cut(alert, "/")
		g.sections[alert] = g.sections[name]
	}
	g.programs()
	return g
}

// programs puts the programs of the runbook into a folder.
func (g *game) programs() {
	g.t.Helper()
	program, err := binary()
	if err == nil {
		err = os.Symlink(program, filepath.Join(g.bin, "orderclose"))
	}
	must.Do(g.t, err)
	// The runbook's redis-cli asks the Redis of the machine on which it runs.
	if cli, err := exec.LookPath("redis-cli"); err == nil {
		script := fmt.Sprintf("#!/bin/sh\nexec %s -u '%s' \"$@\"\n", cli, g.servers.RedisURL)
		must.Do(g.t, os.WriteFile(filepath.Join(g.bin, "redis-cli"), []byte(script), 0o700))
	}
}

// shell returns a command line of the runbook as a process, in the folder of topics.yaml.
func (g *game) shell(line, listen string) *exec.Cmd {
	cmd := exec.Command("bash", "-c", "exec "+strings.NewReplacer(g.words...).Replace(line))
	cmd.Dir = filepath.Dir(g.file)
	cmd.Env = append(g.environ(strings.Fields(line)[1:]), environ.EnvListen+"="+listen, "PATH="+g.bin+":"+os.Getenv("PATH"))
	cmd.Stderr = g.logs
	return cmd
}

// launch starts a process that Prometheus scrapes. A process that is started again has the same address.
func (g *game) launch(part, line string) {
	g.t.Helper()
	if g.addresses[part] == "" {
		g.addresses[part] = freeAddress(g.t)
	}
	g.run(part, func() *exec.Cmd { return g.shell(line, g.addresses[part]) })
	g.prometheus.scrape(part, g.addresses[part])
}

// begin starts the parts, and waits until they are ready and scraped, and none of the incident's alerts fires.
func (g *game) begin(parts ...string) {
	g.t.Helper()
	for _, part := range parts {
		g.launch(part, "orderclose run "+part)
	}
	g.ready(parts...)
	g.until("Prometheus scrapes all parts", func() bool { return g.prometheus.up() == len(g.addresses) })
	began := time.Now()
	g.until("no alert of the incident fires", func() bool {
		if !g.calm(slices.Concat(g.alerts, g.lasting)...) {
			began = time.Now()
		}
		return time.Since(began) > 3*time.Second // more than one evaluation
	})
}

// watch starts a console.
func (g *game) watch() {
	g.t.Helper()
	g.console = freeAddress(g.t)
	g.env = append(g.env, environ.EnvConsoleListen+"="+g.console)
	g.launch("console", "orderclose run console")
	g.ready("console")
}

// calm reports whether none of the alerts fires.
func (g *game) calm(alerts ...string) bool {
	firing, err := g.prometheus.firing()
	return err == nil && !slices.ContainsFunc(alerts, func(alert string) bool { return firing[alert] != nil })
}

func (g *game) ready(parts ...string) {
	g.t.Helper()
	for _, part := range parts {
		g.until(part+" is ready", func() bool {
			code, _ := request(g.t, "GET", "http://"+g.addresses[part]+"/-/ready")
			return code == 200
		})
	}
}

// kill ends a part as a crash does.
func (g *game) kill(part string) { g.signal(part, syscall.SIGKILL) }

// Limits of waiting, for a busy machine.
const (
	fireWithin = 5 * time.Minute
	endWithin  = 8 * time.Minute
)

// fires waits until the alerts fire, with a link to their section.
func (g *game) fires(alerts ...string) {
	g.t.Helper()
	began := time.Now()
	for _, alert := range alerts {
		for !g.fired[alert] {
			firing, err := g.prometheus.firing()
			if annotations := firing[alert]; err == nil && annotations != nil {
				g.fired[alert] = true
				if _, anchor, _ := strings.Cut(annotations["runbook_url"], "#"); anchor != g.sections[alert].Anchor {
					g.t.Errorf("%s links to %s", alert, annotations["runbook_url"])
				}
				g.t.Logf("%s fires after %v: %s", alert, time.Since(began).Round(time.Second), annotations["summary"])
				break
			}
			if time.Since(began) > fireWithin {
				g.t.Fatalf("%s does not fire; %v", alert, g.prometheus.value(`{__name__=~"orderclose_.*"} != 0`))
			}
			<-time.After(200 * time.Millisecond)
		}
	}
}

// repaired says that somebody has just repaired it: from here on no alert may page that does not page now.
func (g *game) repaired() {
	g.t.Helper()
	firing, err := g.prometheus.firing()
	expect.NoError(g.t, err)
	if g.paged == nil {
		g.paged = map[string]bool{}
	}
	for alert := range firing {
		g.paged[alert] = true
	}
}

// noPage fails the test if an alert pages that did not when an incident was repaired whose problem was told.
func (g *game) noPage() {
	g.t.Helper()
	if g.console == "" || g.paged == nil {
		return
	}
	for began := time.Now(); time.Since(began) < 3*time.Second; <-time.After(time.Second) { // more than one evaluation
		firing, err := g.prometheus.firing()
		expect.NoError(g.t, err)
		// This alert averages three minutes, and three seconds here, but an outage is not shortened. So it pages here after
		// each outage. That it does not page with its own durations is a case of deploy/alerts/pipeline.test.yml.
		delete(firing, "OrdercloseCloseLate")
		for alert, annotations := range firing {
			if annotations["severity"] == "page" && !g.paged[alert] && !slices.Contains(g.lasting, alert) {
				g.t.Errorf("%s pages after the recovery: %s", alert, annotations["summary"])
				g.paged[alert] = true
			}
		}
	}
}

// resolves waits until the alerts do not fire any more, and then does what their sections say to verify it.
func (g *game) resolves(alerts ...string) {
	g.t.Helper()
	g.repaired()
	began := time.Now()
	for _, alert := range alerts {
		for {
			firing, err := g.prometheus.firing()
			if err == nil && firing[alert] == nil {
				g.ended[alert] = true
				g.t.Logf("%s has ended after %v", alert, time.Since(began).Round(time.Second))
				break
			}
			if time.Since(began) > endWithin {
				g.t.Fatalf("%s does not end; %v", alert, firing[alert])
			}
			<-time.After(200 * time.Millisecond)
		}
	}
	for _, alert := range alerts {
		g.verify(alert)
	}
}

// has fails the test unless the section of an alert has a command in that part.
func (g *game) has(alert, part, language, line string) {
	g.t.Helper()
	all := g.sections[alert].Commands(part, language)
	must.That(g.t, slices.Contains(all, line), "the part %s of the section of %s has the commands %q, and not %q", part, alert, all, line)
}

// look runs the commands of the part Meaning of a section. What they find, and so their exit code,
// depends on the cause; they need not find the server that is down. They must not hang.
func (g *game) look(alerts ...string) {
	g.t.Helper()
	for _, alert := range alerts {
		for _, line := range g.sections[alert].Commands("Meaning", "sh") {
			_, code := g.do(line)
			g.t.Logf("%s: %s exits with %d", alert, line, code)
		}
		for _, query := range g.sections[alert].Commands("Meaning", "sql") {
			g.exec(query)
		}
	}
}

// first runs the first commands of a section as they are written. Each must be a command that exists; ids in it are examples.
func (g *game) first(anchor string) {
	g.t.Helper()
	section, ok := runbook.At(anchor)
	expect.That(g.t, ok && len(section.First()) != 0, "the runbook has no commands in %s", anchor)
	for _, line := range section.First() {
		out, code := g.do(line)
		g.t.Logf("%s: %s exits with %d", anchor, line, code)
		expect.That(g.t, code != 2 && code != 127, "%s exits with %d: %s", line, code, out)
	}
}

// since waits until a single status says since when there is a problem.
func (g *game) since(title string) {
	g.t.Helper()
	says := regexp.MustCompile(title + ": .*; since 20")
	g.until("status says since when: "+title, func() bool { out, _ := g.do("orderclose status"); return says.MatchString(out) })
}

// act runs a command of the part Act of the sections of all the given alerts. A command that runs a part of the pipeline becomes that part.
func (g *game) act(line string, alerts ...string) {
	g.t.Helper()
	for _, alert := range alerts {
		g.has(alert, "Act", "sh", line)
	}
	if part, ok := strings.CutPrefix(line, "orderclose run "); ok {
		g.launch(part, line)
		g.ready(part)
		return
	}
	for began := time.Now(); ; <-time.After(time.Second) {
		out, code := g.do(line)
		switch {
		case code == 0:
			return
		case code == exitRefused && time.Since(began) < time.Minute: // such as a sweep during another; the error says to wait
		default:
			g.t.Fatalf("%s exits with %d:\n%s\n%s", line, code, out, g.logs.Tail(2000))
		}
	}
}

// exitRefused is the exit code of a command that is refused for now.
const exitRefused = 5

// verify runs the commands by which a section says to verify. Each must exit with 0 in the end.
func (g *game) verify(alert string) {
	g.t.Helper()
	for _, line := range g.sections[alert].Commands("Verify", "sh") {
		for began := time.Now(); ; <-time.After(time.Second) {
			out, code := g.do(line)
			if code == 0 {
				break
			}
			if time.Since(began) > 2*time.Minute {
				g.t.Errorf("%s: %s exits with %d:\n%s\n%s", alert, line, code, out, g.logs.Tail(1000))
				break
			}
		}
	}
}

// do runs a command line to its end.
func (g *game) do(line string) (out string, code int) {
	g.t.Helper()
	cmd := g.shell(line, "127.0.0.1:0")
	data, _ := cmd.Output()
	return string(data), cmd.ProcessState.ExitCode()
}

// told waits until the console, status and doctor each name a problem, and logs how long each took: the console and status before all others.
func (g *game) told(kind health.ProblemKind) {
	g.t.Helper()
	g.named(kind, func(all []health.Problem) bool { return len(all) > 0 && all[0].Kind == kind })
}

// named waits until the problems of console and status are right, and doctor has those of a kind.
func (g *game) named(kind health.ProblemKind, right func([]health.Problem) bool) {
	g.t.Helper()
	began := time.Now()
	said := map[string]func() bool{
		"the console": func() bool {
			_, body := request(g.t, "GET", "http://"+g.console+"/")
			return right(shownProblems(body))
		},
		"status": func() bool {
			var status struct{ Verdict health.Verdict }
			out, _ := g.do("orderclose status -o json")
			return json.Unmarshal([]byte(out), &status) == nil && right(status.Verdict.Problems)
		},
		"doctor": func() bool {
			out, _ := g.do("orderclose doctor")
			return strings.Contains(out, doctorSays[kind])
		},
	}
	var all sync.WaitGroup
	for who, says := range said {
		all.Go(func() {
			for !says() {
				if time.Since(began) > fireWithin {
					g.t.Errorf("%s does not say %s", who, kind)
					return
				}
				<-time.After(200 * time.Millisecond)
			}
			g.t.Logf("%s says %s after %v", who, kind, time.Since(began).Round(100*time.Millisecond))
		})
	}
	all.Wait()
}

// shownProblems returns the problems that the page Now shows, with kind and process, in its order.
func shownProblems(page string) (all []health.Problem) {
	for part := range strings.SplitSeq(page, "<li data-kind=\"") {
		kind, rest, is := strings.Cut(part, "\" data-severity=")
		if !is {
			continue
		}
		p := health.Problem{Kind: health.ProblemKind(kind)}
		rest, _, _ = strings.Cut(rest, "</li>")
		if _, name, named := strings.Cut(rest, "<bdi>"); named {
			p.Process, _, _ = strings.Cut(name, "</bdi>")
		}
		all = append(all, p)
	}
	return all
}

// doctorSays has, for each kind of problem that is told, words of a finding or note of doctor.
var doctorSays = map[health.ProblemKind]string{
	health.WritesRefused: "the-database-takes-no-writes", health.LockRefused: "redis-or-the-lock-is-down", health.OrdersOverdue: "orders overdue",
	health.LettersOpen: "letters open",
}

func (g *game) exec(query string, args ...any) {
	g.t.Helper()
	_, err := g.store.DB().ExecContext(g.t.Context(), query, args...)
	expect.That(g.t, err == nil, "%s: %v", query, err)
}

// place creates n orders of one item that are due in a while, and publishes them. The ids begin with name.
func (g *game) place(name string, n int, in time.Duration) {
	g.t.Helper()
	g.create(name, n, in, g.shop.Publish)
}

// schedule does so with a row of the outbox in place of a record.
func (g *game) schedule(name string, n int, in time.Duration) {
	g.t.Helper()
	g.create(name, n, in, func(ctx context.Context, o orderclose.Order) error {
		return g.shop.Outbox.Add(ctx, orderclose.SQL(g.store.DB()), o)
	})
}

func (g *game) create(name string, n int, in time.Duration, publish func(context.Context, orderclose.Order) error) {
	g.t.Helper()
	for i := range n {
		now := time.Now().Truncate(time.Millisecond)
		o := orderclose.Order{ID: fmt.Sprintf("%s-%d", name, i), Category: "virtual", CreatedAt: now, Due: now.Add(in)}
		err := g.shop.Orders.CreateOrder(g.t.Context(), o, []shopdb.Item{{SKU: scenario.SKU(i % skus), Quantity: 1}})
		if err == nil {
			err = publish(g.t.Context(), o)
		}
		if err != nil {
			g.t.Errorf("order %s: %v", o.ID, err)
			return
		}
	}
}

// flow places n orders every 200 ms, due in a second, until stop is called.
func (g *game) flow(name string, n int) (stop func()) {
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-ended:
				return
			case <-time.After(200 * time.Millisecond):
				g.place(fmt.Sprintf("%s-%d", name, i), n, time.Second)
			}
		}
	}()
	stop = sync.OnceFunc(func() {
		close(ended)
		<-done
	})
	g.t.Cleanup(stop)
	return stop
}

// park creates n orders with a due time, and appends their records to a bucket, whether they belong there or not. It returns the id of the first.
func (g *game) park(b orderclose.Bucket, n int, due time.Time) string {
	g.t.Helper()
	id := func(i int) string { return fmt.Sprintf("parked-%s-%d", b.Topic, i) }
	for i := range n {
		o := orderclose.Order{ID: id(i), Category: "virtual", CreatedAt: due.Add(-time.Minute).Truncate(time.Millisecond), Due: due.Truncate(time.Millisecond)}
		must.Do(g.t, g.shop.Orders.CreateOrder(g.t.Context(), o, nil))
		m, err := wire.Record{Order: o, Release: due}.Encode()
		if err == nil {
			_, err = g.kafka.Append(g.t.Context(), b.Topic, kafka.PartitionOf(m.Key, g.cfg.Partitions), []wire.Message{m})
		}
		must.Do(g.t, err)
	}
	return id(0)
}

// allClosed waits until all orders that are due are closed, also those that wait for their third retry.
func (g *game) allClosed() {
	g.t.Helper()
	for began := time.Now(); ; <-time.After(100 * time.Millisecond) {
		var open int
		err := g.store.DB().QueryRowContext(g.t.Context(), "SELECT COUNT(*) FROM orders WHERE status = 0 AND expire_at < UTC_TIMESTAMP(3) + "+
			"INTERVAL 1 MINUTE").Scan(&open)
		if err == nil && open == 0 {
			return
		}
		must.That(g.t, time.Since(began) <= endWithin, "%d orders are open, %v", open, err)
	}
}

// databaseProxy puts a proxy between the database and the processes that are started from here on.
func (g *game) databaseProxy() *testkit.Proxy {
	g.t.Helper()
	dsn := must.Get(mysql.ParseDSN(g.servers.DSN))(g.t)
	p := g.proxy(dsn.Addr)
	dsn.Addr = p.Addr()
	g.servers.DSN = dsn.FormatDSN()
	return p
}

// redisProxy does so for Redis.
func (g *game) redisProxy() *testkit.Proxy {
	g.t.Helper()
	u := must.Get(url.Parse(g.servers.RedisURL))(g.t)
	p := g.proxy(u.Host)
	u.Host = p.Addr()
	g.servers.RedisURL = u.String()
	return p
}

func (g *game) proxy(target string) *testkit.Proxy {
	g.t.Helper()
	p := must.Get(testkit.NewProxy(target))(g.t)
	g.t.Cleanup(func() { p.Close() })
	return p
}
