// Command peers compares ways to deliver a message later, or to close an order later: this project
// and what a user would run instead. README.md says how to run it and how to read the results.
//
//	peers run       measures, appends each result to a file as a line of JSON, and prints it
//	peers report    writes the numbers of docs/comparison.md and README.md from such a file
//	peers worker    the process that consumes; peers run starts it
//	peers poller    the process that polls in W5; likewise
//	peers batches   the process that works on River's jobs in W5; likewise
//
// Files: way.go has the interface and the list of ways; orderclose.go, rabbitmq.go, redisset.go, polling.go, asynq.go,
// river.go, rocketmq.go and nats.go the ways, cluster.go those on three servers;
// worker.go and proc.go their processes; plan.go the workloads; session.go
// runs them; measure.go, crash.go (W4 and W7), orders.go, poller.go and riverbatches.go (W5) and waiting.go (W6) the measurements;
// publish.go, message.go, receipts.go and tracker.go what they use; result.go
// the numbers; report.go, group.go, columns.go and aims.go the page.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

var errUsage = errors.New("usage: peers run [flags] | peers report [flags] | peers worker RUN | peers poller DSN INTERVAL | peers batches DSN")

func command(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errUsage
	}
	switch args[0] {
	case "run":
		return runSession(ctx, args[1:])
	case "report":
		return runReport(args[1:])
	case "worker":
		if len(args) == 2 {
			return runWorker(ctx, args[1])
		}
	case "poller":
		if len(args) == 3 {
			return runPoller(ctx, args[1], args[2])
		}
	case "batches":
		if len(args) == 2 {
			return runBatches(ctx, args[1])
		}
	}
	return errUsage
}

func runSession(ctx context.Context, args []string) error {
	var s session
	var ways, workloads string
	flags := flag.NewFlagSet("run", flag.ContinueOnError)
	flags.StringVar(&ways, "peers", "", "names of ways; empty: all")
	flags.StringVar(&workloads, "workloads", "", "some of "+strings.Join(allWorkloads, " ")+"; empty: all, or w1 w2 w3 if quick")
	flags.IntVar(&s.rounds, "rounds", 1, "how often each workload is measured; W5 has its own number")
	flags.BoolVar(&s.quick, "quick", false, "less of everything")
	flags.StringVar(&s.file, "results", "results.jsonl", "file to which results are appended")
	flags.StringVar(&s.dir, "dir", "", "an empty folder for servers")
	flags.StringVar(&s.program, "orderclose", "", "the program orderclose")
	if err := flags.Parse(args); err != nil {
		return err
	}
	var err error
	if s.ways, err = specsOf(ways); err != nil {
		return err
	}
	s.workloads = strings.Fields(workloads)
	if len(s.workloads) == 0 {
		s.workloads = allWorkloads
		if s.quick {
			s.workloads = allWorkloads[:3]
		}
	}
	for _, w := range s.workloads {
		if !slices.Contains(allWorkloads, w) {
			return fmt.Errorf("WORKLOADS names %q: write some of %s", w, strings.Join(allWorkloads, " "))
		}
	}
	return s.run(ctx)
}
