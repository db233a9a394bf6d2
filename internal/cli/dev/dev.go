// Package dev is the command line for development, on embedded servers. Main runs it. The
// command demo runs the pipeline for half a minute and checks it; serve runs a shop with
// the pipeline until it is stopped.
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
		Short: "Try the pipeline on embedded servers",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.AddCommand(newDemo(env), newServe(env))
	return cli.Execute(ctx, env, root, args)
}
