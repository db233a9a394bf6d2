// Command bench measures the relay, the closer, the outbox and the sweep on real
// servers, beside other ways to do the same. README.md says how to run it and how to
// read the results.
//
//	bench relay     throughput and lateness: JSON on stdout, tables on stderr
//	bench idle PROGRAM
//	                what an idle PROGRAM run relay costs, without and with a thousand
//	                topics of other applications: JSON on stdout, a table on stderr
//	bench close     closing, on a real database, and end to end: JSON on stdout, tables
//	                on stderr
//	bench payments  the part of bench close about payments that lock rows in any order: the same
//	bench outbox    what an outbox row costs a checkout, and how fast such rows are
//	                dispatched: JSON on stdout, a table on stderr
//	bench sweep     finding and closing overdue orders in large tables, and bench
//	                outbox: JSON on stdout, tables on stderr
//	bench side JOB  one loop in a process of its own; the other commands start these
//
// Files of the relay's benches: plan.go has the sizes; order.go and fill.go
// the records; relay.go, copyloop.go and franz.go the three sides;
// side.go and process.go their processes; workspace.go the topics; tally.go the check
// of the target; pipeline.go a relay between a producer and a consumer; throughput.go,
// lateness.go and idle.go the measurements; served.go the product's program, which
// idle.go watches; report.go the numbers; listener.go the broker's process.
// databases.go has what is compared, MariaDB and PostgreSQL, in the benches close, outbox and sweep.
// Of closing: shop.go has the shop of each; closers.go the closers; payments.go payments beside
// closing; checkouts.go the checkouts beside it; pipelineside.go relay and closer in one process; close.go and
// endtoend.go the measurements; closework.go what a close costs the database.
// Of the outbox: outbox.go. Of sweeps: sweep.go.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/testkit/measure"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 2 && args[0] == "side" {
		return runSide(args[1])
	}
	modes := map[string]func(context.Context, *workspace, plan) error{"relay": benchRelay, "close": benchClose, "payments": benchPayments,
		"outbox": benchOutbox, "sweep": benchSweep}
	if len(args) == 2 && args[0] == "idle" {
		program := args[1]
		args, modes["idle"] = args[:1], func(ctx context.Context, p *workspace, pl plan) error { return benchIdle(ctx, p, pl, program) }
	}
	if len(args) != 1 || modes[args[0]] == nil {
		return errors.New("usage: bench relay | bench idle PROGRAM | bench close | bench payments | bench outbox | bench sweep")
	}
	brokers, err := localBrokers()
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	p, err := newWorkspace(brokers)
	if err != nil {
		return err
	}
	defer p.clean()
	return modes[args[0]](ctx, p, planFor(os.Getenv("QUICK") == "1"))
}

// localBrokers returns the brokers that the environment names. They must be on this
// machine: a bench must not load a server that others use.
func localBrokers() ([]string, error) {
	servers, err := environ.Read(os.LookupEnv)
	if err == nil {
		err = servers.Require(environ.EnvBrokers)
	}
	if err != nil {
		return nil, err
	}
	for _, b := range servers.Brokers {
		host, _, err := net.SplitHostPort(b)
		if ip := net.ParseIP(host); err != nil || host != "localhost" && !ip.IsLoopback() {
			return nil, fmt.Errorf("%s names %s: a bench puts load on brokers of this machine only, such as 127.0.0.1:9092", environ.EnvBrokers, b)
		}
	}
	return servers.Brokers, nil
}

// benchRelay runs all measurements of make bench-relay.
func benchRelay(ctx context.Context, p *workspace, pl plan) error {
	cold, err := measureCold(ctx, p, pl)
	if err != nil {
		return fmt.Errorf("lateness on a cold broker: %w", err)
	}
	throughput, err := measureThroughput(ctx, p, pl)
	if err != nil {
		return fmt.Errorf("throughput: %w", err)
	}
	lateness, err := measureRates(ctx, p, pl)
	if err != nil {
		return err
	}
	return measure.Print(os.Stdout, os.Stderr, relayReport{throughput, lateness, cold})
}
