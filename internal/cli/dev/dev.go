// Package dev is the command line for a desk without servers.
package dev

import (
	"context"

	"github.com/spf13/cobra"

	"orderclose/internal/cli"
)

// Main runs the development command line and returns its exit code.
func Main(ctx context.Context, env cli.Env, args []string) int {
	root := &cobra.Command{
		Use:   "orderclose-dev",
		Short: "Try the pipeline on a desk without servers",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.AddCommand(newDemo(env), newServe(env))
	return cli.Execute(ctx, env, root, args)
}
