package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/orderclose/orderclose/internal/environ"
)

// maxAnswer bounds how many bytes of a health answer are read. The answer has a line for
// each missing server.
const maxAnswer = 16 << 10

func newHealthcheck(c *common) *cobra.Command {
	var alive bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "healthcheck [--alive]",
		Short: "Ask a running process on this machine whether it is ready; exits 3 if not",
		Long: `Ask the process that listens on ` + environ.EnvListen + ` (default ` + environ.DefaultListen + `)
whether it is ready, as a container's health check does. Exits 0 if it is, 3 if it still
waits for something, 1 if no process answers, 7 after the timeout.`,
		Example: "  orderclose healthcheck --timeout 1s",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if timeout <= 0 {
				return Exit(Usage, fmt.Errorf("--timeout is %v, must be positive", timeout))
			}
			path := "/-/ready"
			if alive {
				path = "/-/healthy"
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			return c.healthcheck(ctx, path)
		},
	}
	cmd.Flags().BoolVar(&alive, "alive", false, "ask only whether it answers, not whether it is ready")
	cmd.Flags().DurationVar(&timeout, "timeout", 3*time.Second, "the longest time to wait for the answer")
	return cmd
}

func (c *common) healthcheck(ctx context.Context, path string) error {
	url, err := c.healthURL(path)
	if err != nil {
		return Exit(Usage, err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return Exit(Usage, fmt.Errorf("%s: %w", environ.EnvListen, err))
	}
	// Without a proxy: the process is on this machine.
	res, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return fmt.Errorf("no answer: %w; check that orderclose run is running, with the same %s", err, environ.EnvListen)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("%s: %w", url, err)
	}
	answer := struct {
		Ready bool     `json:"ready"`
		Says  []string `json:"says"` // what it waits for, what it lacks, and its database
	}{Ready: res.StatusCode == http.StatusOK}
	said := strings.TrimSpace(string(body))
	if !answer.Ready && (res.StatusCode != http.StatusServiceUnavailable || said == "") {
		return fmt.Errorf("%s answered %s: is that orderclose?", url, res.Status)
	}
	answer.Says = strings.Split(said, "\n")
	return cmp.Or(c.print(answer, func(w io.Writer) { fmt.Fprintln(w, said) }), exitIf(!answer.Ready, Findings, "it is not ready"))
}

// healthURL returns the URL of the process on this machine. A process that listens on every
// address is asked on the loopback.
func (c *common) healthURL(path string) (string, error) {
	listen, _ := c.env.LookupEnv(environ.EnvListen)
	if listen == "" {
		listen = environ.DefaultListen
	}
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return "", fmt.Errorf("%s is not host:port; write it such as %s", environ.EnvListen, environ.DefaultListen)
	}
	switch host {
	case "", "0.0.0.0":
		host = "127.0.0.1"
	case "::":
		host = "::1"
	}
	return "http://" + net.JoinHostPort(host, port) + path, nil
}
