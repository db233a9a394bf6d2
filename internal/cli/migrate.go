package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/spf13/cobra"

	"orderclose/internal/config"
	"orderclose/internal/store"
	"orderclose/internal/tables"
)

func newMigrate(c *common) *cobra.Command {
	var print string
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Bring the database's schema to what this version wants",
		Long: `Bring the database's schema to what this version wants.

Where topics.yaml maps orders to tables of your own (section orders), only what is
kept beside them is made: receipts, stock_ledger, outbox_events and the like. Your
tables are looked at first and never changed. If they do not fit the mapping, or a close
would do harm to them, nothing is made and the exit code is 3.`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if print != "" {
				return c.printMigrations(print, cmd.Flags().Changed("config"))
			}
			s, err := c.open(config.EnvDSN)
			if err != nil {
				return err
			}
			defer s.Close()
			return c.migrate(cmd.Context(), s)
		},
	}
	cmd.Flags().StringVar(&print, "print", "", "print the SQL for mysql or sqlite instead, for those who run their own")
	cmd.Flags().Lookup("print").NoOptDefVal = "mysql"
	return cmd
}

// migrate makes the schema. The shop's own tables are looked at before anything is
// made, and those of the reference schema afterwards.
func (c *common) migrate(ctx context.Context, s *session) error {
	if s.cfg.Orders != nil {
		if err := s.Store.CheckMapping(ctx); err != nil {
			return findings(err)
		}
	}
	if err := s.Store.Migrate(ctx); err != nil {
		return err
	}
	fmt.Fprintln(c.env.Stderr, "the schema is up to date")
	if err := s.Store.CheckMapping(ctx); err != nil {
		return findings(err)
	}
	notes, err := s.Store.MappingNotes(ctx)
	for _, note := range notes {
		fmt.Fprintln(c.env.Stderr, "note:", note)
	}
	return err
}

// findings gives what is wrong with the orders' tables its exit code, and a line for
// each problem.
func findings(err error) error {
	wrong, ok := errors.AsType[*store.MappingError](err)
	if !ok {
		return err
	}
	return Exit(Findings, fmt.Errorf("the database's tables are not as topics.yaml maps them:\n%w", tables.Err(wrong.Problems)))
}

// printMigrations prints the schema for the configuration, or without one, which
// it needs only to know whether orders are in tables of the user's own.
func (c *common) printMigrations(dialect string, named bool) error {
	cfg, err := config.Load(c.config)
	if errors.Is(err, fs.ErrNotExist) && !named {
		cfg, err = config.Default(), nil
	}
	if err == nil {
		err = store.WriteMigrations(c.env.Stdout, dialect, cfg.Orders != nil)
	}
	if err != nil {
		return Exit(Usage, err)
	}
	return nil
}
