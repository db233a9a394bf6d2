package pipeline_test

import (
	"testing"
	"testing/fstest"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/pipeline"
	"github.com/orderclose/orderclose/pipeline/pipelinetest"
	"github.com/orderclose/orderclose/room"
)

// notes is a room with a key and a table.
var notes = room.Room{
	Name:     "notes",
	Settings: config.Section[struct{}]{Key: "notes"},
	Tables:   fstest.MapFS{"sqlite/01.sql": {Data: []byte("CREATE TABLE notes (id INTEGER PRIMARY KEY);\n")}},
}

func TestApp_HasTheTablesOfRoomsWhoseKeysAreNamed(t *testing.T) {
	servers := must.Get(pipelinetest.Start(pipelinetest.Options{}))(t)
	defer servers.Close()
	connections := must.Get(servers.Connect("notes"))(t)
	defer connections.Close()
	for _, c := range []struct {
		key     string
		missing bool
	}{{"", false}, {"notes:\n", true}, {"notes:\n", false}} {
		cfg := must.Get(pipeline.Parse("topics.yaml", []byte("buckets: [1s]\n"+c.key), notes))(t)
		app := must.Get(pipeline.New(pipeline.Options{Config: cfg, Connections: connections, Rooms: []room.Room{notes}}))(t)
		defer app.Close()
		err := app.CheckDatabase(t.Context())
		expect.That(t, c.missing == says(err, "the database lacks the tables of notes") && c.missing == (err != nil), "key %q: %v", c.key, err)
		must.Do(t, app.CreateTables(t.Context()))
		must.Do(t, app.CheckDatabase(t.Context()))
	}
	must.Get(servers.DB().ExecContext(t.Context(), "INSERT INTO notes (id) VALUES (1)"))(t)
}
