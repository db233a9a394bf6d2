package config_test

import (
	"os"
	"strings"
	"testing"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// topics.schema.json is for editors, and topics.yaml names it. UPDATE_GOLDEN=1 writes it.
func TestTopicsSchema_FollowsFromTheTags(t *testing.T) {
	const name = "../../topics.schema.json"
	want := must.Get(config.Schema())(t)
	if os.Getenv("UPDATE_GOLDEN") == "1" {
		must.Do(t, os.WriteFile(name, want, 0o644))
	}
	have, file := must.Get(os.ReadFile(name))(t), must.Get(os.ReadFile(shipped))(t)
	expect.That(t, string(have) == string(want), "%s is not what the tags give: UPDATE_GOLDEN=1 go test ./internal/config -run TopicsSchema", name)
	expect.That(t, strings.HasPrefix(string(file), "# yaml-language-server: $schema=topics.schema.json\n"), "the first line of topics.yaml does not name it")
}
