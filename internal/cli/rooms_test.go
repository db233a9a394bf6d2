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
		Name: "notes", Settings: config.Section[struct{}]{Key: "notes"},
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
