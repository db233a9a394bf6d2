package cli

import (
	"bytes"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/room"
)

func TestRooms_PrintedMigrationsHaveTheTablesOfNamedKeys(t *testing.T) {
	notes := room.Room{
		Name: "notes", Settings: config.Section[struct{}]{Key: "notes", Fields: func(*struct{}) config.Fields { return nil }},
		Tables: fstest.MapFS{"mysql/01.sql": {Data: []byte("CREATE TABLE notes (id BIGINT PRIMARY KEY);\n")}},
	}
	for key, want := range map[string]bool{"": false, "notes:\n": true} {
		var out bytes.Buffer
		code := Main(t.Context(), Env{
			Rooms: []room.Room{notes}, Stdout: &out, Stderr: t.Output(), LookupEnv: func(string) (string, bool) { return "", false },
		}, []string{"migrate", "--print", "--config", topicsYAML(t, "buckets: [10s]\n"+key)})
		expect.That(t, code == 0 && strings.Contains(out.String(), "CREATE TABLE notes") == want, "key %q: exit %d\n%s", key, code, out.String())
	}
}

func TestRooms_CommandsRefuseWrongArguments(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"shadow", "report"}, "--from is missing"},
		{[]string{"shadow", "report", "--from", "1h", "--to", "2h"}, "is not before"},
		{[]string{"shadow", "report", "--from", "1h", "--tolerance", "none"}, "--tolerance"},
		{[]string{"shadow", "report", "--from", "1h", "--limit", "-1"}, "--limit"},
		{[]string{"shadow", "report", "--from", "1h"}, config.EnvDSN},
		{[]string{"shadow", "run"}, "unknown command"},
		{[]string{"run", "shadow"}, config.EnvDSN},
		{[]string{"run", "shadow", "relay", "closer"}, "without closer and compensator"},
		{[]string{"run", "all", "shadow"}, "without closer and compensator"},
	} {
		_, stderr, code := run(t, map[string]string{config.EnvBrokers: "127.0.0.1:1"}, append(c.args, "--config", topicsYAML(t, "buckets: [10s]\n"))...)
		expect.That(t, code == 2 && strings.Contains(stderr, c.want), "%v: exit %d, %q; want exit 2 and %q", c.args, code, stderr, c.want)
	}
}
