package deploy

import (
	"os"
	"strings"
	"testing"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/room"
	"github.com/orderclose/orderclose/rooms"
)

// topics.schema.json is for editors, and topics.yaml names it. UPDATE_GOLDEN=1 writes it.
func TestTopicsSchema_FollowsFromTheGrammar(t *testing.T) {
	const name = "../topics.schema.json"
	want := must.Get(config.Schema(room.Sections(rooms.All())...))(t)
	if os.Getenv("UPDATE_GOLDEN") == "1" {
		must.Do(t, os.WriteFile(name, want, 0o644))
	}
	have := must.Get(os.ReadFile(name))(t)
	if string(have) != string(want) {
		t.Errorf("%s is not what the grammar gives: UPDATE_GOLDEN=1 go test ./deploy -run TopicsSchema", name)
	}
	if text := must.Get(os.ReadFile("../topics.yaml"))(t); !strings.HasPrefix(string(text), "# yaml-language-server: $schema=topics.schema.json\n") {
		t.Error("the first line of topics.yaml does not name topics.schema.json")
	}
}
