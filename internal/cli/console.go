package cli

import (
	"github.com/spf13/cobra"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/pipeline"
)

func newConsole(c *common) *cobra.Command {
	return &cobra.Command{
		Use:   "console",
		Short: "Serve the web console until SIGTERM",
		Long: `Serve the web console until SIGTERM, on ` + config.EnvConsoleListen + ` (default
` + config.DefaultConsoleListen + `): what waits and what falls due, the history of an order, dead letters,
sweeps, replays, and the delays of topics.yaml. It shows what it finds, whichever servers
answer, and needs no running part of the pipeline. At least one of ` + config.EnvBrokers + `
and ` + config.EnvDSN + ` must be set; with ` + config.EnvRedis + ` it can sweep.

On the loopback everybody may look. Elsewhere it needs an identity and TLS, and actions
need ` + config.EnvConsoleActions + `=1 and an identity: docs/console.md.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.runRoles(cmd.Context(), []string{string(pipeline.Console)}, false)
		},
	}
}
