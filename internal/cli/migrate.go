package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"orderclose/internal/config"
	"orderclose/internal/store"
)

func newMigrate(c *common) *cobra.Command {
	var print string
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Bring the database's schema to what this version wants",
		Args:  usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if print != "" {
				if err := store.WriteMigrations(c.env.Stdout, print, false); err != nil {
					return Exit(Usage, err)
				}
				return nil
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
			return nil
		},
	}
	cmd.Flags().StringVar(&print, "print", "", "print the SQL for mysql or sqlite instead, for those who run their own")
	cmd.Flags().Lookup("print").NoOptDefVal = "mysql"
	return cmd
}
