package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/servers"
)

func TestVictims_OfThreeServersAreLeaders(t *testing.T) {
	for name, want := range map[string][]string{
		"orderclose-3": {victimLeader, victimController}, "redis-3": {victimLeader}, "redis": {victimServer, victimWorker},
	} {
		chosen, err := specsOf(name)
		if err != nil || !slices.Equal(chosen[0].victims(), want) {
			t.Errorf("%s: %v, %v", name, chosen[0].victims(), err)
		}
		three := chosen[0].cluster != nil
		expect.That(t, three != chosen[0].does("w2") && chosen[0].does("w4"), "%s is measured in %s", name, chosen[0].workloads)
	}
}

func TestOrderclose_LeaderIsTheActiveControllerOrAnotherBroker(t *testing.T) {
	all := must.Get(three("kafka", t.TempDir()))(t)
	metadata := filepath.Join(all[0].Dir, "data", "__cluster_metadata-0")
	must.Do(t, os.MkdirAll(metadata, 0o700))
	for text, want := range map[string][2]*servers.Server{ // the controller and a leader
		`{"leaderId":1,"leaderEpoch":7,"data_version":1}`: {all[0], all[1]},
		`{"leaderId":3}`:  {all[2], all[0]},
		`{"leaderId":-1}`: {},
		`{`:               {},
	} {
		must.Do(t, os.WriteFile(filepath.Join(metadata, "quorum-state"), []byte(text), 0o600))
		for i, victim := range []string{victimController, victimLeader} {
			got, err := (&pipeline{}).leader(t.Context(), victim, all)
			expect.That(t, got == want[i] && (err == nil) == (want[i] != nil), "%s, %s: %v, %v", text, victim, got, err)
		}
	}
}

func TestRabbitMQ_HasQuorumQueuesOnThreeNodesAndInTheWayOfThatName(t *testing.T) {
	one := &rabbitMQ{run: run{Servers: map[string]string{"rabbitmq": "a:1"}}}
	several := &rabbitMQ{run: run{Servers: map[string]string{"rabbitmq": "a:1,b:2,c:3"}}}
	got := one.typed(amqp.Table{})
	expect.That(t, len(got) == 0, "one node: %v", got)
	one.run.Way = "rabbitmq-quorum"
	if got := one.typed(amqp.Table{}); got["x-queue-type"] != "quorum" {
		t.Errorf("one node with quorum queues: %v", got)
	}
	if got := several.typed(amqp.Table{}); len(got) != 1 || got["x-queue-type"] != "quorum" {
		t.Errorf("three nodes: %v", got)
	}
	if got := several.typed(deadLetters(0)); got["x-dead-letter-strategy"] != "at-least-once" || got["x-overflow"] != "reject-publish" {
		t.Errorf("dead letters: %v", got)
	}
}
