package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

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
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			hangup := make(chan os.Signal, 1)
			signal.Notify(hangup, syscall.SIGHUP)
			defer signal.Stop(hangup)
			return c.serveConsole(cmd.Context(), hangup)
		},
	}
}

// checkConsole returns an error if no server is named: the console would have nothing to show.
func (s *session) checkConsole() error {
	if s.Kafka != nil || s.Store != nil {
		return nil
	}
	return Exit(Usage, fmt.Errorf("%s is not set, and %s is not set: the console has nothing to show; set one of them", config.EnvBrokers, config.EnvDSN))
}

func (c *common) serveConsole(ctx context.Context, hangup <-chan os.Signal) error {
	s, err := c.openRoles([]pipeline.Role{pipeline.Console})
	if err != nil {
		return err
	}
	defer s.Close()
	defer c.attachKafka(s)()
	if err := s.checkConsole(); err != nil {
		return err
	}
	a, err := s.appFor(hangup)
	if err != nil {
		return err
	}
	ran := make(chan error, 1)
	go func() { ran <- a.Run(ctx, pipeline.Console) }()
	select {
	case err := <-ran:
		return err
	case <-ctx.Done():
		return stopped(ran)
	}
}
