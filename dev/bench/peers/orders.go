package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/testkit/measure"
	"github.com/orderclose/orderclose/internal/testkit/process"
	"github.com/orderclose/orderclose/internal/testkit/servers"
)

// The times of W5.
const (
	// fillTime is for the statements that fill the tables, and for the start of the programs.
	fillTime = 15 * time.Second
	// scheduleTime is how long before their due time the orders are scheduled. It is the length of the
	// only bucket.
	scheduleTime = 10 * time.Second
	// ordersLimit is how long after the due time all orders must be closed.
	ordersLimit = 3 * time.Minute
	// scheduling is how many calls of Schedule run at once.
	scheduling = 2000
)

// measureOrders is W5: orders of two lines that are due at one instant, with their stock in MariaDB, or in
// PostgreSQL for one way, closed by the pipeline and by pollers in the same transaction, in turns.
func (s *session) measureOrders(ctx context.Context) error {
	var ways []spec
	for _, way := range s.ways {
		if way.does("w5") {
			ways = append(ways, way)
		}
	}
	if len(ways) == 0 {
		return nil
	}
	dir := filepath.Join(s.dir, "w5")
	kinds := []server{{kind: "kafka"}, {kind: "mariadb"}}
	if slices.ContainsFunc(ways, func(way spec) bool { return inPostgres(way.name) }) {
		kinds = append(kinds, server{kind: "postgresql"})
	}
	started, err := startServers(ctx, dir, spec{servers: kinds})
	defer stopServers(dir, started)
	if err != nil {
		for _, way := range ways {
			if err := s.leaveOut(way, "w5", err.Error()); err != nil {
				return err
			}
		}
		return ctx.Err()
	}
	w := workloadOf("w5", s.quick)
	for round := range w.rounds + 1 {
		load := w
		if round == 0 { // does not count: the servers have just started
			load.messages /= 10
		}
		// The servers get faster while they run, so every second round goes in the opposite order.
		if round > 0 {
			slices.Reverse(ways)
		}
		for _, way := range ways {
			r, err := s.closeOrders(ctx, way, load, started)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil {
				fmt.Fprintf(os.Stderr, "%s w5 failed: %v\n", way.name, err)
				r.LeftOut = firstLine(err.Error())
			}
			if round == 0 && err == nil {
				continue
			}
			if err := s.keep(r); err != nil {
				return err
			}
		}
	}
	return nil
}

// inPostgres says whether the orders of a way are in PostgreSQL.
func inPostgres(way string) bool { return way == onPostgres || way == byRiver }

// hasOther says whether another program closes the orders of a way, instead of relay and closer.
func hasOther(way spec) bool {
	return way.interval > 0 || way.name == byRiver || strings.HasPrefix(way.name, bySweeps)
}

// other returns that program; nil: there is none.
func (p *pipeline) other(way spec) (*process.Process, error) {
	switch {
	case !hasOther(way):
		return nil, nil
	case way.name == byRiver:
		return self("batches", p.dsn(p.database()))
	case way.interval > 0:
		return self("poller", p.dsn(p.database()), way.interval.String())
	}
	return &process.Process{Name: "orderclose run sweeper", Command: func() *exec.Cmd {
		cmd := p.command("run", "sweeper", "--every", "1s", "--quiet")
		cmd.Stderr = os.Stderr
		return cmd
	}}, nil
}

// closeOrders lets a way close orders once.
func (s *session) closeOrders(ctx context.Context, way spec, load workload, started []*servers.Server) (r result, err error) {
	r = result{System: way.name, Workload: "w5", Messages: load.messages,
		Settings: map[string]string{"orders": "two lines each, in turns with the other ways; the CPU is of the closing programs, without servers"}}
	if way.name == byRiver {
		r.Settings["client"] = versionOf("github.com/riverqueue/river")
		r.Settings["jobs"] = fmt.Sprintf("InsertManyFast of %d jobs, MaxWorkers %d; a transaction closes the orders of up to %d jobs, %d at once",
			insertPage, batchWorkers, pollPage, pollWorkers)
	}
	dir, err := os.MkdirTemp(s.dir, "run-")
	if err != nil {
		return r, err
	}
	defer os.RemoveAll(dir)
	roles := "relay closer outbox"
	if hasOther(way) {
		roles = "outbox" // other programs leave the events to the dispatcher
	}
	p := newOrderclose(roles)(run{Way: way.name, ID: strings.ToLower(rand.Text()[:runIDLength]), Workload: "w5", Servers: addresses(started), Dir: dir,
		Program: s.program}).(*pipeline)
	defer p.close()
	if err := p.open(ctx); err != nil {
		return r, err
	}
	programs := []*process.Process{p.relay}
	other, err := p.other(way)
	if err != nil {
		return r, err
	}
	if other != nil {
		if err := other.Start(); err != nil {
			return r, err
		}
		defer stop(other)
		programs = append(programs, other)
	}
	// Never a whole second, which would suit a poller.
	due := time.Now().Add(fillTime + scheduleTime).Truncate(time.Second).Add(500 * time.Millisecond)
	if err := p.fillOrders(ctx, load.messages, due); err != nil {
		return r, err
	}
	if !sleep(ctx, time.Until(due.Add(-scheduleTime))) {
		return r, ctx.Err()
	}
	before := usedByAll(started, programs)
	switch {
	case way.name == byRiver:
		err = p.insertJobs(ctx, load.messages, due)
	case other == nil:
		err = p.scheduleOrders(ctx, load.messages, due)
	}
	if err != nil {
		return r, err
	}
	if time.Until(due) < time.Second {
		return r, errors.New("the orders were made less than a second before they are due: this machine is too busy")
	}
	if !sleep(ctx, time.Until(due)) {
		return r, ctx.Err()
	}
	limited, cancel := context.WithTimeout(ctx, ordersLimit)
	defer cancel()
	if err := p.awaitNone(limited, "SELECT EXISTS (SELECT 1 FROM orders WHERE status = 0)", programs); err != nil {
		return r, fmt.Errorf("orders are still open: %w", err)
	}
	r.LastClosedS = measure.Round(time.Since(due).Seconds(), 2)
	if err := p.awaitNone(limited, "SELECT EXISTS (SELECT 1 FROM outbox_events)", programs); err != nil {
		return r, fmt.Errorf("events are not published: %w", err)
	}
	r.AllCPU = measure.Round(usedByAll(started, programs)-before, 2)
	for _, program := range programs {
		used, err := process.UsedBy(program.PID())
		if err != nil {
			return r, err
		}
		r.ServerCPU = measure.Round(r.ServerCPU+used.CPU.Seconds(), 2)
		r.ServerMB = measure.Round(max(r.ServerMB, float64(used.Peak)/(1<<20)), 2)
	}
	var median float64 // milliseconds
	if err := p.db.QueryRowContext(ctx, fmt.Sprintf("SELECT lateness_ms FROM receipts ORDER BY lateness_ms LIMIT 1 OFFSET %d",
		load.messages/2)).Scan(&median); err != nil {
		return r, err
	}
	r.HalfClosedS = measure.Round(median/1000, 2)
	for _, program := range programs {
		if err := program.End(syscall.SIGTERM, 15*time.Second); err != nil {
			return r, err
		}
	}
	return r, p.sumsOK(ctx, load.messages)
}

// usedByAll returns the CPU seconds of all servers, programs and of this process, which schedules.
func usedByAll(started []*servers.Server, programs []*process.Process) float64 {
	var pids []int
	for _, s := range started {
		pids = append(pids, s.PIDs()...)
	}
	for _, p := range programs {
		pids = append(pids, p.PID())
	}
	own, _ := process.ReadStat(os.Getpid())
	return cpuOf(pids...) + own.CPU.Seconds()
}

// orderNumber returns the id of an order of W5.
func orderNumber(n int) string { return fmt.Sprint("w5-", n) }

// fillOrders fills the tables by statements on the server. The orders have the numbers from 1 on.
func (p *pipeline) fillOrders(ctx context.Context, orders int, due time.Time) error {
	numbers, utc, analyze := "seq_1_to_%d AS %s", "", "ANALYZE TABLE orders, order_items, stock"
	if p.postgres() {
		numbers, utc, analyze = "generate_series(1, %d) AS %s (seq)", "+00", "ANALYZE orders, order_items, stock"
	}
	at := func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.000") + utc }
	for _, statement := range []string{
		fmt.Sprintf("INSERT INTO orders (id, category, status, created_at, expire_at, version) SELECT CONCAT('w5-', seq), 'virtual', 0, '%s', '%s', 1 FROM "+numbers,
			at(due.Add(-5*time.Minute)), at(due), orders, "n"),
		fmt.Sprintf("INSERT INTO order_items (order_id, line_no, sku_id, quantity) SELECT CONCAT('w5-', n.seq), l.seq, "+
			"CONCAT('SKU-', (n.seq * 7919 + l.seq) %% 10000), 1 FROM "+numbers+" CROSS JOIN "+numbers,
			orders, "n", 2, "l"),
		"INSERT INTO stock (sku_id, available, reserved) SELECT sku_id, 1000000, COUNT(*) FROM order_items GROUP BY sku_id",
		analyze,
	} {
		if _, err := p.db.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// scheduleOrders schedules all orders, as many checkouts do at the same time.
func (p *pipeline) scheduleOrders(ctx context.Context, orders int, due time.Time) error {
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(scheduling)
	for n := range orders {
		all.Go(func() error {
			return p.producer.Schedule(ctx, orderclose.Order{ID: orderNumber(n + 1), Category: "virtual", CreatedAt: due.Add(-5 * time.Minute), Due: due})
		})
	}
	return all.Wait()
}

// awaitNone waits until a query says 0, or until a program has ended.
func (p *pipeline) awaitNone(ctx context.Context, query string, programs []*process.Process) error {
	return process.Await(ctx, func(ctx context.Context) error {
		var some bool
		err := p.db.QueryRowContext(ctx, query).Scan(&some)
		if err == nil && some {
			err = errors.New("not yet")
		}
		return err
	}, programs...)
}

// sumsOK checks the tables after every order was closed. Nothing may be missing, twice or early.
func (p *pipeline) sumsOK(ctx context.Context, orders int) error {
	for _, want := range []struct {
		what, query string
		count       int
	}{
		{"orders closed", "SELECT COUNT(*) FROM orders WHERE status = 2", orders},
		{"orders closed before they were due", "SELECT COUNT(*) FROM orders WHERE closed_at < expire_at", 0},
		{"receipts", "SELECT COUNT(*) FROM receipts", orders},
		{"receipts of two pieces", "SELECT COUNT(*) FROM receipts WHERE returned LIKE '{%:1,%:1}'", orders},
		{"SKUs with pieces that did not come back once", "SELECT COUNT(*) FROM stock s JOIN (SELECT sku_id, COUNT(*) AS n FROM order_items" +
			" GROUP BY sku_id) i USING (sku_id) WHERE reserved <> 0 OR available <> 1000000 + n", 0},
	} {
		var got int
		if err := p.db.QueryRowContext(ctx, want.query).Scan(&got); err != nil {
			return err
		}
		if got != want.count {
			return fmt.Errorf("%d %s, want %d", got, want.what, want.count)
		}
	}
	return nil
}
