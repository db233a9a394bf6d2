package cli

import (
	"os"
	"strings"
	"testing"

	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/wire"
)

func TestTopicsApply_ChangesATopicOfAnotherTeamOnlyByItsName(t *testing.T) {
	r := newRig(t)
	if _, _, err := r.kafka.Apply(t.Context(), []kafka.TopicSpec{{Name: "customers", Partitions: 1, Replication: 1}}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.kafka.Append(t.Context(), "customers", 0, []wire.Message{{Key: []byte("7"), Value: []byte(`{"name":"Ann"}`)}}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(r.file, []byte("buckets: [1m]\npartitions: 2\ntopics: {events: customers}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, stderr, code := r.cli("topics", "apply", "--change", "clients"); code != int(Usage) || !strings.Contains(stderr, "topics.yaml has no topic of that name") {
		t.Errorf("a name that is not in topics.yaml exits with %d:\n%s%s", code, out, stderr)
	}
	if out, stderr, code := r.cli("topics", "apply"); code != int(Partly) || !strings.Contains(out, "orderclose topics apply --change customers") {
		t.Errorf("without a name it exits with %d:\n%s%s", code, out, stderr)
	}
	if n, err := r.kafka.Partitions(t.Context(), "customers"); n != 1 || err != nil {
		t.Errorf("the topic has %d partitions, %v; want 1", n, err)
	}
	if out, stderr, code := r.cli("topics", "apply", "--change", "customers"); code != 0 {
		t.Errorf("with its name it exits with %d:\n%s%s", code, out, stderr)
	}
	if out, _, code := r.cli("topics", "check"); code != int(Done) {
		t.Errorf("afterwards topics check exits with %d:\n%s", code, out)
	}
}
