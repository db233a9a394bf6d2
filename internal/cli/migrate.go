package cli

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/spf13/cobra"

	"orderclose/internal/config"
	"orderclose/internal/store"
)

func newMigrate(c *common) *cobra.Command {
	var print string
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Bring the database's schema to what this version wants",
		Long: `Bring the database's schema to what this version wants.

Where topics.yaml maps orders to tables of your own (section orders), only what is
kept beside them is made: receipts, stock_ledger, outbox_events and the like. Your
tables are looked at and never changed; exit code 3 if they do not fit the mapping.`,
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
			if err := s.Store.Migrate(cmd.Context()); err != nil {
				return err
			}
			fmt.Fprintln(c.env.Stderr, "the schema is up to date")
			if err := s.Store.CheckMapping(cmd.Context()); err != nil {
				if _, ok := errors.AsType[*store.MappingError](err); ok {
					return Exit(Findings, err)
				}
				return err
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&print, "print", "", "print the SQL for mysql or sqlite instead, for those who run their own")
	cmd.Flags().Lookup("print").NoOptDefVal = "mysql"
	return cmd
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
