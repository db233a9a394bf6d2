package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/internal/text"
)

func newMigrate(c *common) *cobra.Command {
	var print string
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "migrate [--print[=DATABASE]]",
		Short: "Migrate the database's schema to this version",
		Long: `Migrate the database's schema to this version.

A key of topics.yaml may need tables of its own, which are created too.

If topics.yaml maps orders to tables of your own (section orders), only the tables beside
them are created: receipts, outbox_events, outbox_schedules and the like. Your tables are
checked first and never changed. If they do not fit the mapping, or a close would do harm
to them, nothing is created and the exit code is 3. Orders that are due by rule are counted, and
their statuses checked, when the tables beside them exist. At the end one unpaid order is closed, and
the transaction rolled back: if that fails, the exit code is 3 too.

A schema that a newer program has migrated stays as it is. If this program cannot use it, the
exit code is 3.`,
		Example: "  orderclose migrate\n  orderclose migrate --wait 1m -o json\n  orderclose migrate --print=postgres >schema.sql",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if print != "" {
				return c.printMigrations(print)
			}
			return with(c.open(environ.EnvDSN))(func(s *session) error {
				if err := c.repeat(cmd.Context(), wait, "ping the database", store.Passes, s.Store.Ping); err != nil {
					return err
				}
				return c.migrate(cmd.Context(), s)
			})
		},
	}
	waitFlag(cmd, &wait)
	cmd.Flags().StringVar(&print, "print", "", "only print the SQL, for mysql or postgres, to run it yourself")
	cmd.Flags().Lookup("print").NoOptDefVal = "mysql"
	return cmd
}

// migrate creates or upgrades the schema. It checks the shop's own tables before it changes
// anything, and the tables of the reference schema afterwards.
func (c *common) migrate(ctx context.Context, s *session) error {
	if s.cfg.Orders != nil {
		if err := s.Store.CheckMapping(ctx); err != nil {
			return findings(err)
		}
		if !s.cfg.Orders.ByRule {
			if err := c.showOrders(ctx, s); err != nil {
				return err
			}
		}
	}
	own := s.ownStore()
	before, _ := s.Store.Schema(ctx) // Migrate says what is wrong with it
	err := s.Store.Migrate(ctx)
	if _, wrong := errors.AsType[*store.SchemaError](err); wrong {
		return Exit(Findings, err)
	}
	if err != nil {
		return err
	}
	if err := s.Store.RecordDelays(ctx); err != nil {
		return err
	}
	if s.cfg.ByRule() { // the recorded delays say which orders are due
		if err := c.showOrders(ctx, s); err != nil {
			return err
		}
	}
	v, err := s.Store.Schema(ctx)
	if err != nil {
		return err
	}
	c.note(migrated(before, v))
	done := migration{From: before.Has, To: v.Has}
	if !own {
		if err := s.Store.CheckMapping(ctx); err != nil {
			return findings(err)
		}
		done.Notes, err = s.Store.MappingHints(ctx)
	}
	if err != nil {
		return err
	}
	for _, note := range done.Notes {
		c.note("note:", note)
	}
	if done.Trial, err = c.tryClose(ctx, s); err != nil || c.output != "json" {
		return err
	}
	return c.encode(done)
}

// migration is the output of migrate.
type migration struct {
	From  int64    `json:"from"` // the version of the schema; 0: there was none
	To    int64    `json:"to"`
	Notes []string `json:"notes,omitempty"` // about the mapping
	Trial string   `json:"trial,omitempty"` // what the close of one order would have changed
}

// migrated says what a migration has done.
func migrated(before, now store.Schema) string {
	switch {
	case before.Has == 0 && !now.Newer():
		return fmt.Sprintf("the schema is created (version %d)", now.Has)
	case before.Has < now.Has && !now.Newer():
		return fmt.Sprintf("the schema is migrated from version %d to %d", before.Has, now.Has)
	}
	return schemaIs(now)
}

// showOrders prints the numbers of the shop's own tables. It refuses a doubtful status. A doubt about the due times
// may end by itself, such as after an outage, so it is only printed; so is a failure to count.
func (c *common) showOrders(ctx context.Context, s *session) error {
	ctx, cancel := context.WithTimeout(ctx, doctorTimeout)
	defer cancel()
	counts, err := s.countOrders(ctx)
	switch {
	case err != nil:
		c.note("note: the orders could not be counted:", err)
	case counts.wrong:
		return Exit(Findings, fmt.Errorf("%s; %s", counts.Doubt, counts.Fix))
	default:
		c.note(counts.line())
	}
	return nil
}

// schemaIs says which version a schema has that this program can use.
func schemaIs(v store.Schema) string {
	if v.Newer() {
		return fmt.Sprintf("the schema has version %d, of a newer program; this program needs %d and can use it", v.Has, v.Wants)
	}
	return fmt.Sprintf("the schema is up to date (version %d)", v.Has)
}

// findings gives an error about the orders' tables its exit code, and one line for each
// problem.
func findings(err error) error {
	wrong, ok := errors.AsType[*store.MappingError](err)
	if !ok {
		return err
	}
	return Exit(Findings, fmt.Errorf("the tables of the database do not match the mapping of orders:\n%w", mapping.Err(wrong.Problems)))
}

// printMigrations prints the SQL of the schema. It reads the configuration only to know
// whether the orders are in tables of the user's own. The file topics.yaml of the working directory may be
// missing.
func (c *common) printMigrations(dialect string) error {
	if d := store.DialectName(dialect); d != store.MySQL && d != store.Postgres {
		return Exit(Usage, fmt.Errorf("there are no migrations for a database called %q: write --print, --print=%s or --print=%s", dialect,
			store.MySQL, store.Postgres))
	}
	cfg, err := c.load()
	if errors.Is(err, fs.ErrNotExist) && c.config == defaultConfig {
		cfg, err = config.Default(), nil
	}
	var text strings.Builder
	if err == nil {
		err = store.WriteMigrations(&text, store.DialectName(dialect), cfg.Orders)
	}
	if err == nil && cfg.ByRule() {
		err = store.WriteDelays(&text, store.DialectName(dialect), cfg.Topics.Close, cfg.Delays)
	}
	if err != nil {
		return Exit(Usage, err)
	}
	if c.output == "json" {
		return c.encode(map[string]string{"sql": text.String()})
	}
	_, err = io.WriteString(c.env.Stdout, text.String())
	return err
}

// tried says what a trial close would have changed.
func tried(t store.Trial) string {
	if t.OrderID == "" {
		return "there is no unpaid order"
	}
	return fmt.Sprintf("order %s could be closed, and was not: %s", text.OneLine(t.OrderID, 100), strings.Join(t.Changes, "; "))
}

// tryClose tries to close an order in the shop's own tables, and returns what would have changed. That it cannot be tried is
// only printed: the user of migrate may lack the privileges of a closer.
func (c *common) tryClose(ctx context.Context, s *session) (would string, err error) {
	if s.cfg.Orders == nil || s.cfg.Closer.Kind == config.KindHTTP {
		return "", nil
	}
	ctx, cancel := context.WithTimeout(ctx, doctorTimeout)
	defer cancel()
	t, err := s.Store.TryClose(ctx)
	switch {
	case errors.Is(err, store.ErrNoTrial):
		c.note("note:", err)
	case err != nil:
		return "", findings(err)
	default:
		would = text.OneLine(tried(t), 2000)
		c.note("close of one order:", would)
	}
	return would, nil
}
