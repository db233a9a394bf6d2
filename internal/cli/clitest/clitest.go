// Package clitest has what the tests of rooms with commands share.
package clitest

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orderclose/orderclose/internal/cli"
	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/room"
)

// Refuses runs orderclose with the room alone, once for each key of rows: the arguments. Each run must exit with 2, and its message must
// have the value. The environment names a broker and nothing else.
func Refuses(t *testing.T, r room.Room, rows map[string]string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "topics.yaml")
	must.Do(t, os.WriteFile(file, []byte("buckets: [10s]\n"), 0o600))
	for args, want := range rows {
		var errs bytes.Buffer
		code := cli.Main(t.Context(), cli.Env{
			Rooms: []room.Room{r}, Stdout: io.Discard, Stderr: &errs,
			LookupEnv: func(name string) (string, bool) {
				return map[string]string{environ.EnvBrokers: "127.0.0.1:1"}[name], name == environ.EnvBrokers
			},
		}, append(strings.Fields(args), "--config", file))
		expect.That(t, code == int(cli.Usage) && strings.Contains(errs.String(), want), "%s: exit %d, %q; want exit 2 and %q", args, code, errs.String(), want)
	}
}
