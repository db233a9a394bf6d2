package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"orderclose/internal/app"
	"orderclose/internal/config"
)

// drainTime is how long a process that was told to stop may take.
const drainTime = 10 * time.Second

func newRun(c *common) *cobra.Command {
	return &cobra.Command{
		Use:   "run [relay|closer|compensator|all]...",
		Short: "Run parts of the pipeline until SIGTERM",
		Long: `Run parts of the pipeline until SIGTERM, which drains: what is under way is
acked and committed, and the groups are left, within 10 s.

Metrics, /-/healthy and /-/ready are served on ` + config.EnvListen + `
(default ` + config.DefaultListen + `).`,
		Args: usageArgs(cobra.ArbitraryArgs),
		RunE: func(cmd *cobra.Command, args []string) error {
			roles, err := rolesOf(args)
			if err != nil {
				return Exit(Usage, err)
			}
			s, err := c.open(variables(roles)...)
			if err != nil {
				return err
			}
			defer s.Close()
			defer c.kafkaToo(s)()
			return s.run(cmd.Context(), roles)
		},
	}
}

// rolesOf reads the arguments; none is all.
func rolesOf(args []string) ([]app.Role, error) {
	if len(args) == 0 || slices.Contains(args, "all") {
		return app.AllRoles(), nil
	}
	var roles []app.Role
	for _, arg := range args {
		role := app.Role(arg)
		if !slices.Contains(app.AllRoles(), role) {
			return nil, fmt.Errorf("there is no part %q: run %v, or all", arg, app.AllRoles())
		}
		if !slices.Contains(roles, role) {
			roles = append(roles, role)
		}
	}
	return roles, nil
}

// variables names what the roles need of the environment.
func variables(roles []app.Role) []string {
	var names []string
	if slices.Contains(roles, app.Relay) || slices.Contains(roles, app.Closer) {
		names = append(names, config.EnvBrokers)
	}
	if slices.Contains(roles, app.Closer) || slices.Contains(roles, app.Compensator) {
		names = append(names, config.EnvDSN)
	}
	if slices.Contains(roles, app.Compensator) {
		names = append(names, config.EnvRedis)
	}
	return names
}

// run plays the roles and serves their metrics until ctx ends.
func (s *session) run(ctx context.Context, roles []app.Role) error {
	a, err := s.app()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	served := make(chan error, 1)
	go func() {
		defer cancel()
		served <- app.Serve(ctx, s.servers.Listen, a.Handler(onLoopback(s.servers.Listen)), s.logger)
	}()
	ran := make(chan error, 1)
	go func() {
		defer cancel()
		ran <- a.Run(ctx, roles...)
	}()
	<-ctx.Done()
	s.logger.Info("stopping")
	late := time.NewTimer(drainTime)
	defer late.Stop()
	select {
	case err := <-ran:
		return errors.Join(err, <-served)
	case <-late.C:
		return Exit(TimedOut, fmt.Errorf("not stopped within %v; what was not committed is done again", drainTime))
	}
}

// onLoopback says whether only this machine can reach the listener: profiles
// are served to nobody else.
func onLoopback(listen string) bool {
	return strings.HasPrefix(listen, "127.") || strings.HasPrefix(listen, "localhost:") || strings.HasPrefix(listen, "[::1]:")
}
