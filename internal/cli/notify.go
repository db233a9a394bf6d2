package cli

import (
	"github.com/spf13/cobra"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/notify"
	"github.com/orderclose/orderclose/pipeline"
)

func newNotify(c *common) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "notify",
		Short: "Send Alertmanager's alerts to DingTalk robots, and to providers of SMS and calls, until SIGTERM",
		Long: `Send Alertmanager's alerts to DingTalk robots, and to providers of SMS and calls, until
SIGTERM. notify.yaml names the receivers. Alertmanager posts to /alert/RECEIVER on
` + config.EnvListen + ` (default ` + config.DefaultListen + `), where /metrics, /-/healthy and
/-/ready are served too. It gets 200 only when the provider accepted the message, 503 if a
retry may help, and another status if a person must fix something.

It needs no other server: no Kafka, no database and no topics.yaml.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			servers, err := config.FromEnviron(c.env.LookupEnv, config.EnvListen)
			if err != nil {
				return Exit(Usage, err)
			}
			logger := c.logger()
			cfg, err := config.LoadNotify(file)
			if err != nil {
				return Exit(Usage, err)
			}
			n, err := notify.New(notify.Options{Config: cfg, Logger: logger})
			if err != nil {
				return Exit(Usage, err)
			}
			return pipeline.Serve(cmd.Context(), servers.Listen, n.Handler(), logger)
		},
	}
	cmd.Flags().StringVar(&file, "notify-config", "notify.yaml", "the file with the receivers")
	return cmd
}
