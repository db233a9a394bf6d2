package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/orderclose/orderclose/internal/cli"
)

// run runs the command line and returns its exit code.
func run(ctx context.Context, env cli.Env, args []string) int {
	root := &cobra.Command{
		Use:   "orderclose-dev",
		Short: "Try the pipeline on embedded servers",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.AddCommand(newDemo(env), newServe(env))
	return cli.Execute(ctx, env, root, args)
}
