package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/orderclose/orderclose/internal/cli"
	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/testkit/checker"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
)

// skus is how many SKUs the shop of the demo has.
const skus = 50

// demo holds the flags of a demo.
type demo struct {
	env    cli.Env
	orders int
	rate   float64
	seed   uint64
	real   bool
	// database is the kind of a real database; empty: the database of ORDERCLOSE_DB_DSN.
	database string
	output   string
	debug    bool
}

func newDemo(env cli.Env) *cobra.Command {
	d := &demo{env: env}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run the whole pipeline for half a minute and check every guarantee",
		Long: `Run the whole pipeline for half a minute, with orders of several categories and
delays of seconds. Half of them are scheduled by the outbox, half directly. Some are paid
in time, some are never published, so that the sweep must find them, and some are
published twice. Then check every guarantee, and exit with 1 if one was violated.

The demo runs on embedded servers in this process. With --real it runs on the servers
that the environment names (or that make up started), with a database, topics and a Redis
key of its own, which it deletes at the end. --database chooses among those that make up
started.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return d.run(cmd.Context()) },
	}
	cmd.Flags().IntVar(&d.orders, "orders", 300, "how many orders")
	cmd.Flags().Float64Var(&d.rate, "rate", 50, "orders per second")
	cmd.Flags().Uint64Var(&d.seed, "seed", 1, "the random seed, which decides what happens to which order")
	cmd.Flags().BoolVar(&d.real, "real", false, "run on real servers")
	cmd.Flags().StringVar(&d.database, "database", "",
		"run on real servers with this kind of database: mariadb, mysql or postgres; default: that of "+environ.EnvDSN)
	cmd.Flags().StringVarP(&d.output, "output", "o", "table", "how to print the summary: table or json")
	cmd.Flags().BoolVar(&d.debug, "debug", false, "log at debug level")
	return cmd
}

// summary is the output of the demo. Programs read its keys.
type summary struct {
	Backend          string   `json:"backend"`
	Orders           int      `json:"orders"`
	Paid             int      `json:"paid"`
	ClosedByPipeline int      `json:"closed_by_pipeline"`
	ClosedBySweep    int      `json:"closed_by_sweep"`
	Open             int      `json:"open"`
	Early            int      `json:"early"`
	Published        int      `json:"published"` // published directly, after their commit
	ByOutbox         int      `json:"by_outbox"` // scheduled in their own transaction
	Events           int      `json:"events"`    // events of closes
	StockOK          bool     `json:"stock_ok"`
	Lateness         lateness `json:"lateness_ms"` // of the orders that the pipeline closed
}

type lateness struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

func (d *demo) run(ctx context.Context) (err error) {
	switch {
	case d.orders < 4 || d.orders > 1_000_000:
		return cli.Exit(cli.Usage, fmt.Errorf("--orders is %d, want 4 to 1000000", d.orders))
	case d.rate <= 0:
		return cli.Exit(cli.Usage, fmt.Errorf("--rate is %v, want more than 0", d.rate))
	case d.database != "" && databases[d.database] == "":
		return cli.Exit(cli.Usage, fmt.Errorf("--database is %q, want mariadb, mysql or postgres", d.database))
	case d.output != "table" && d.output != "json":
		return cli.Exit(cli.Usage, fmt.Errorf("-o is %q, want table or json", d.output))
	}
	level := slog.LevelWarn
	if d.debug {
		level = slog.LevelDebug
	}
	logger := slog.New(slog.NewTextHandler(d.env.Stderr, &slog.HandlerOptions{Level: level}))
	st, err := d.open(ctx, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.close()) }()
	v, err := d.play(ctx, st)
	if err != nil {
		return err
	}
	if err := d.print(st, v); err != nil {
		return err
	}
	if !v.OK() {
		for _, broken := range v.Violations {
			fmt.Fprintln(d.env.Stderr, "violation:", broken)
		}
		return cli.Exit(cli.Failed, fmt.Errorf("%d guarantees were violated", len(v.Violations)))
	}
	return nil
}

// play runs the scenario and returns the verdict of the checker.
func (d *demo) play(ctx context.Context, st *environment) (*checker.Verdict, error) {
	over := time.Duration(float64(d.orders) / d.rate * float64(time.Second))
	steps := scenario.Plan(scenario.Spec{Seed: d.seed, Orders: d.orders, Over: over, Categories: demoCategories(), SKUs: skus})
	if err := st.shop.Stock(ctx, skus); err != nil {
		return nil, err
	}
	stop := st.start(ctx)
	defer stop()
	if err := st.ready(ctx); err != nil {
		return nil, err
	}
	fmt.Fprintf(d.env.Stderr, "%d orders on %s servers; unpaid ones close after: %s; a sweep each %v\n",
		d.orders, st.backend, delaysInWords(st.cfg), st.cfg.Compensator.Period)
	progress := cli.NewProgress(d.env.Stderr, "settled")
	stopWatching := d.watch(ctx, st, progress)
	err := st.shop.Run(ctx, time.Now(), steps)
	if err == nil {
		err = st.awaitSettled(ctx)
	}
	stopWatching()
	if err != nil {
		return nil, err
	}
	stop()
	return st.check(ctx)
}

// watch shows the progress of the orders until the returned function is called.
func (d *demo) watch(ctx context.Context, st *environment, p *cli.Progress) func() {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if n, err := st.count(ctx); err == nil {
				p.Say(fmt.Sprintf("%d/%d  %s", n.orders-n.unpaid, d.orders, n.describe(int64(d.orders))))
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// describe says what became of the orders. If all are settled, it says what the demo waits for.
func (n counts) describe(all int64) string {
	text := fmt.Sprintf("%d created, %d paid, %d closed", n.orders, n.paid, n.closed)
	if n.orders-n.unpaid == all && n.outgoing > 0 {
		text += fmt.Sprintf("; waits until the outbox has published %d more rows", n.outgoing)
	}
	return text
}

func (d *demo) print(st *environment, v *checker.Verdict) error {
	ms := func(t time.Duration) float64 { return float64(t.Microseconds()) / 1000 }
	s := summary{
		Backend: st.backend, Orders: v.Orders, Paid: v.Paid,
		ClosedByPipeline: v.ByPath["pipeline"], ClosedBySweep: v.ByPath["sweep"],
		Open: v.Open + v.Waiting, Early: v.Early, Published: len(st.shop.Published()), ByOutbox: len(st.shop.Added()), Events: v.Events, StockOK: v.StockOK,
		Lateness: lateness{ms(v.Quantile(.5)), ms(v.Quantile(.99)), ms(v.Quantile(1))},
	}
	if d.output == "json" {
		return json.NewEncoder(d.env.Stdout).Encode(s)
	}
	printSummary(d.env.Stdout, s, v.Cancelled)
	return nil
}

func printSummary(w io.Writer, s summary, cancelled int) {
	stock := map[bool]string{true: "every unit accounted for", false: "OFF"}[s.StockOK]
	fmt.Fprintf(w, `
  orders                 %6d
  scheduled by outbox    %6d   with their own transaction; %d times directly, after it
  paid in time           %6d
  cancelled              %6d
  closed by the pipeline %6d   late by p50 %.0f ms, p99 %.0f ms, at most %.0f ms
  closed by the sweep    %6d   were never published
  still open             %6d
  closed early           %6d
  events published       %6d   one for each close
  stock                  %s

`, s.Orders, s.ByOutbox, s.Published, s.Paid, cancelled, s.ClosedByPipeline, s.Lateness.P50, s.Lateness.P99, s.Lateness.Max,
		s.ClosedBySweep, s.Open, s.Early, s.Events, stock)
}
