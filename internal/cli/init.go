package cli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/orderclose/orderclose/internal/clients"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/propose"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/internal/text"
)

func newInit(c *common) *cobra.Command {
	var a propose.Answers
	var print bool
	cmd := &cobra.Command{
		Use:   "init [--table TABLE]",
		Short: "Propose a topics.yaml for the tables of your shop",
		Long: `Propose a topics.yaml for the tables of your shop.

It reads the tables that the user of the database sees, and their newest rows. It only selects,
for some seconds at most, and changes nothing. Each choice in the file has its evidence behind it.
What the database does not tell is asked on a terminal, or answered by flags. Otherwise the questions are
printed, no file is written, and the exit code is 3. A file that exists is never overwritten.`,
		Example: "  orderclose init\n  orderclose init --table t_order --unpaid 0 --closed 9 --zone +08:00 --delay 30m --print",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := os.Stat(c.config); err == nil && !print {
				return Exit(Refused, fmt.Errorf("%s exists: write --print, or --config with another name", c.config))
			}
			return c.init(cmd, &a, print)
		},
	}
	f := cmd.Flags()
	f.StringVar(&a.Table, "table", "", "the table of orders")
	f.StringVar(&a.Unpaid, "unpaid", "", "the status of an order that waits for its payment")
	f.StringVar(&a.Closed, "closed", "", "the status that a closed order gets")
	f.Func("zone", "the time zone in which the shop writes times: UTC, +08:00, Asia/Shanghai", func(zone string) error {
		a.Zone = zone
		_, err := mapping.ParseZone(zone)
		return err
	})
	f.Func("delay", "after how long an unpaid order closes, such as 30m or 1d", func(delay string) (err error) {
		if a.Delay, err = config.ParseDuration(delay); err != nil {
			err = fmt.Errorf("%w; write it as 30m, 12h or 1d", err)
		}
		return err
	})
	f.StringVar(&a.Created, "created", "", "the column with the time of creation")
	f.StringVar(&a.Due, "due", "", "the column with the time until which an order may be paid; or none")
	f.StringVar(&a.Stock, "stock", "", "when the stock falls: placed, paid, or the tables in which it falls when an order is placed")
	f.StringArrayVar(&a.Keep, "keep", nil, "which unpaid orders stay open: COLUMN=VALUES (a list, or set), unknown, or none; once for each column")
	f.BoolVar(&a.Kafka, "kafka", false, "for the pipeline with Kafka: write buckets too")
	f.BoolVar(&print, "print", false, "print the file, and write none")
	return cmd
}

// initResult is the output of init.
type initResult struct {
	*propose.Proposal
	Problems string            `json:"problems,omitempty"` // what migrate would refuse
	Preview  []propose.Preview `json:"preview,omitempty"`
}

func (c *common) init(cmd *cobra.Command, a *propose.Answers, print bool) error {
	ctx := cmd.Context()
	servers, err := environ.Read(c.env.LookupEnv, environ.EnvDSN)
	if err == nil {
		err = servers.Require(environ.EnvDSN)
	}
	if err != nil {
		return Exit(Usage, err)
	}
	plain, err := clients.Connect(servers, clients.Database{MaxConns: 2}, config.Default(), c.logger())
	if err != nil {
		return Exit(Usage, err)
	}
	defer plain.Close()
	facts, err := propose.Read(ctx, plain.Store, a.Table, a.Created)
	if err != nil {
		return err
	}
	p, input := facts.Propose(*a), bufio.NewReader(c.env.Stdin)
	for len(p.Questions) > 0 && c.output != "json" && isTerminal(c.env.Stdin) && isTerminal(c.env.Stderr) {
		q, before := p.Questions[0], *a
		fmt.Fprint(c.env.Stderr, text.Harmless(asked(p.Questions[:1])), "> ")
		answer := readLine(ctx, input)
		if answer == "" {
			fmt.Fprintln(c.env.Stderr)
			break // all open questions are printed
		}
		if q.Key != "" && !strings.Contains(answer, "=") {
			answer = q.Key + answer
		}
		err := cmd.Flags().Set(q.Flag, answer)
		facts.ReadRows(ctx, a.Table)
		next := facts.Propose(*a)
		if err == nil && next.Refused != "" {
			err = errors.New(next.Refused)
		}
		if err != nil { // asked again
			c.note(err)
			*a = before
			continue
		}
		p = next
	}
	r := initResult{Proposal: p}
	switch {
	case ctx.Err() != nil:
		return interrupted(ctx, ctx.Err())
	case p.Refused != "":
		return Exit(Findings, errors.New(p.Refused))
	case len(p.Questions) > 0:
		return c.answer(r, nil, func(w io.Writer) { fmt.Fprint(w, asked(p.Questions)) },
			Exit(Findings, errors.New("questions are open: answer them by flags")))
	}
	if r.Problems, err = c.checkProposal(ctx, servers, p); err != nil {
		return err
	}
	if r.Preview, err = facts.Preview(ctx, p); err != nil {
		return err
	}
	if !print {
		file, err := os.OpenFile(c.config, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644) // since the questions it may exist
		if err == nil {
			_, err = file.WriteString(p.YAML)
			err = errors.Join(err, file.Close())
		}
		if err != nil {
			return cmp.Or(exitIf(errors.Is(err, fs.ErrExist), Refused, "%w: write --print, or --config with another name", err), err)
		}
		c.note("wrote", c.config)
	}
	return c.print(r, func(w io.Writer) {
		if print {
			fmt.Fprintln(w, p.YAML)
			w = c.env.Stderr
		}
		for _, d := range p.Doubts {
			fmt.Fprintln(w, "look at:", d)
		}
		if r.Problems != "" {
			fmt.Fprintln(w, "before migrate:", r.Problems)
		}
		next := "Next:"
		if r.Problems != "" || len(p.Doubts) > 0 {
			next = "Next, after what stands behind `look at` and `before migrate`:"
		}
		if len(r.Preview) > 0 {
			fmt.Fprintf(w, "%-12s  %-7s %-14s  %s\n", "WOULD CLOSE", "ORDERS", "OLDEST OVERDUE", "EXAMPLES")
		}
		for _, row := range r.Preview {
			fmt.Fprintf(w, "%-12s  %-7d %-14s  %s\n", row.When, row.Orders, cmp.Or(row.Oldest, "-"), strings.Join(row.Examples, "; "))
		}
		fmt.Fprintf(w, "\nNothing was changed in the database. %[2]s\n  orderclose migrate%[1]s\n"+
			"  orderclose compensate --dry-run%[1]s   # which orders the first sweep closes\n"+
			"  orderclose audit --from 24h --bound 10m --tolerance 1m%[1]s   # each day of a week, beside your present job\n", c.same, next)
	})
}

// checkProposal checks a proposal as migrate checks a file.
func (c *common) checkProposal(ctx context.Context, servers environ.Servers, p *propose.Proposal) (problems string, err error) {
	cfg, err := config.Parse(c.config, []byte(p.YAML), config.WithoutKafka)
	if err != nil {
		return "", Exit(Findings, fmt.Errorf("the tables cannot be mapped as they are: %w\n%s", err, p.YAML))
	}
	mapped, err := clients.Connect(servers, clients.Database{MaxConns: 2}, cfg, c.logger())
	if err != nil {
		return "", err
	}
	defer mapped.Close()
	err = cmp.Or(mapped.Store.CheckMapping(ctx), mapped.Store.SetAside(true))
	if _, is := errors.AsType[*store.MappingError](err); is {
		return statements.ReplaceAllString(findings(err).Error(), "$1\n    $2"), nil
	}
	if err == nil {
		hints, _ := mapped.Store.MappingHints(ctx) // without the tables of migrate some cannot be told
		p.Doubts = append(p.Doubts, hints...)
	}
	return "", err
}

// statements finds the statements in problems, which are to stand in lines of their own.
var statements = regexp.MustCompile(`([;:]) ((?:CREATE|ALTER) )`)

// asked writes questions for people.
func asked(all []propose.Question) (lines string) {
	for _, q := range all {
		question := strings.TrimSpace("--"+q.Flag+" "+q.Key) + ": " + q.Text + strings.TrimSuffix(". "+q.Choices, ". ")
		lines += strings.Join(append([]string{question}, q.Numbers...), "\n    ") + "\n"
	}
	return lines
}

// readLine returns a line of the terminal; "": it has ended, or ctx.
func readLine(ctx context.Context, input *bufio.Reader) string {
	line := make(chan string, 1)
	go func() {
		typed, _ := input.ReadString('\n')
		line <- strings.TrimSpace(typed)
	}()
	select {
	case <-ctx.Done():
		return ""
	case typed := <-line:
		return typed
	}
}
