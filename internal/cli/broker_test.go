package cli

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/orderclose/orderclose/internal/backlog"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/health"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

// rig is an embedded broker on the loopback, and a small topics.yaml. The tests create the topics by the command itself.
type rig struct {
	t       *testing.T
	broker  *kfake.Cluster
	brokers string
	file    string
	cfg     *config.Config
	kafka   *kafka.Cluster
}

// newRig lets the test run in parallel with others: most of them wait.
func newRig(t *testing.T) *rig {
	t.Helper()
	t.Parallel()
	return newSerialRig(t)
}

func newSerialRig(t *testing.T) *rig {
	t.Helper()
	broker := must.Get(kfake.NewCluster(kfake.BrokerConfigs(map[string]string{"group.initial.rebalance.delay.ms": "0"})))(t)
	t.Cleanup(broker.Close)
	r := &rig{t: t, broker: broker, brokers: strings.Join(broker.ListenAddrs(), ","), file: topicsYAML(t, "buckets: [1m, 1h]\npartitions: 2\n")}
	r.cfg = must.Get(config.Load(r.file))(t)
	r.kafka = must.Get(kafka.New(kafka.Options{Brokers: broker.ListenAddrs()}))(t)
	t.Cleanup(r.kafka.Close)
	return r
}

// cli runs a command against the broker.
func (r *rig) cli(args ...string) (stdout, stderr string, code int) {
	r.t.Helper()
	return run(r.t, map[string]string{environ.EnvBrokers: r.brokers}, append(args, "--config", r.file)...)
}

// json runs a command, checks its exit code, and decodes its output.
func (r *rig) json(into any, code int, args ...string) (stderr string) {
	r.t.Helper()
	out, stderr, got := r.cli(append(args, "-o", "json")...)
	err := json.Unmarshal([]byte(out), into)
	must.That(r.t, err == nil && got == code, "%v exits with %d, want %d: %v\n%s%s", args, got, code, err, out, stderr)
	return stderr
}

// put appends a record to a partition with the given append time.
func (r *rig) put(topic string, partition int, appended, due time.Time) {
	r.t.Helper()
	client := must.Get(kgo.NewClient(kgo.SeedBrokers(strings.Split(r.brokers, ",")...), kgo.RecordPartitioner(kgo.ManualPartitioner())))(r.t)
	defer client.Close()
	must.Do(r.t, client.ProduceSync(r.t.Context(), &kgo.Record{
		Topic: topic, Partition: int32(partition), Timestamp: appended, Key: []byte("order-17"), Value: []byte("{}"),
		Headers: []kgo.RecordHeader{
			{Key: wire.HeaderVersion, Value: []byte(wire.WireVersion)},
			{Key: wire.HeaderDue, Value: []byte(strconv.FormatInt(due.UnixMilli(), 10))},
		},
	}).FirstErr())
}

func TestBroker_TopicsCheckSaysWhatApplyDoesAndChangesNothing(t *testing.T) {
	r := newRig(t)
	var plan ops.TopicsPlan
	for range 2 {
		r.json(&plan, 3, "topics", "check")
		must.That(t, len(plan.Would) == 5 && plan.Topics == 5, "%+v; want a plan to create all 5 topics", plan)
	}
	var applied struct {
		Fixed []kafka.Finding `json:"fixed"`
	}
	r.json(&applied, 0, "topics", "apply")
	expect.That(t, len(applied.Fixed) == len(plan.Would), "apply fixed %+v, planned were %+v", applied.Fixed, plan.Would)
	r.json(&plan, 0, "topics", "check")
	expect.That(t, len(plan.Would)+len(plan.Left) == 0, "after apply: %+v", plan)
}

// Kafka's own topic of commits decides which groups stand still while a broker is down.
func TestBroker_TopicsCheckAndDoctorCompareTheTopicOfCommits(t *testing.T) {
	r := newRig(t)
	r.file = topicsYAML(t, "buckets: [1m, 1h]\npartitions: 2\nreplication: 2\n")
	r.cli("topics", "apply")
	var found ops.TopicsPlan
	r.json(&found, 0, "topics", "check")
	_, _, err := r.kafka.Apply(t.Context(), []kafka.TopicSpec{{Name: "__consumer_offsets", Partitions: 3, Replication: 1, Retention: time.Hour}})
	must.Do(t, err)
	r.json(&found, 3, "topics", "check")
	must.That(t, len(found.Would)+len(found.Left) == 1 && found.Left[0].Topic == "__consumer_offsets" &&
		strings.Contains(found.Left[0].What, "has 1 replicas, want 2"), "found %+v", found)
	var result struct{ Verdict health.Verdict }
	r.json(&result, 3, "doctor")
	named := slices.ContainsFunc(result.Verdict.Problems, func(p health.Problem) bool {
		return p.Kind == health.TopicsDiffer && strings.Contains(p.Detail, "__consumer_offsets")
	})
	expect.That(t, named, "doctor says %+v", result)
}

func TestBroker_StatusShowsWaitingRecordsAndExitsWith3IfOverdue(t *testing.T) {
	r := newRig(t)
	var report backlog.Status
	r.json(&report, 6, "status")
	must.That(t, len(report.Topics) == 3 && report.Problems() == 3 && strings.Contains(report.Topics[0].Problem, "topics apply"), "without topics: %+v", report)
	r.cli("topics", "apply")
	now := time.Now()
	r.put("delay_1h", 1, now, now.Add(time.Hour))
	report = backlog.Status{}
	r.json(&report, 0, "status")
	p := report.Topics[1].Partitions[1]
	if p.Waiting != 1 || p.Overdue != 0 || p.Committed != nil || p.Owner != nil || p.Head == nil ||
		p.Head.Leaves.UnixMilli() != now.Add(time.Hour).UnixMilli() {
		t.Errorf("a record that waits: %+v, head %+v", p, p.Head)
	}

	r.put("delay_1m", 0, now.Add(-3*time.Minute), now) // its release was two minutes ago
	report = backlog.Status{}
	stderr := r.json(&report, 3, "status")
	if p := report.Topics[0].Partitions[0]; p.Overdue < 120 || p.Head.Key != "order-17" {
		t.Errorf("an overdue record: %+v", p)
	}
	expect.That(t, strings.Contains(stderr, "delay_1m/0") && strings.Contains(stderr, "orderclose run relay"),
		"%q does not name the partition and the fix", stderr)
}

func TestBroker_StatusShowsOwnerAndCommit(t *testing.T) {
	r := newRig(t)
	r.cli("topics", "apply")
	long := time.Now().Add(-time.Hour)
	for range 5 {
		r.put("delay_1m", 0, long, long)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan struct{}, 10)
	done := make(chan error)
	go func() {
		done <- r.kafka.Consume(ctx, r.cfg.RelayGroup(r.cfg.Buckets[0]), "delay_1m", func(ctx context.Context, claim wire.Claim) {
			if claim.Partition == 0 {
				claim.Done(5, "")
			}
			served <- struct{}{}
			<-ctx.Done()
		})
	}()
	<-served
	<-served
	var report backlog.Status
	deadline := time.Now().Add(20 * time.Second)
	for {
		report = backlog.Status{}
		out, _, _ := r.cli("status", "-o", "json")
		must.Do(t, json.Unmarshal([]byte(out), &report))
		if p := report.Topics[0].Partitions[0]; p.Committed != nil || time.Now().After(deadline) {
			break
		}
	}
	p := report.Topics[0].Partitions[0]
	expect.That(t, p.Committed != nil && *p.Committed == 5 && p.Waiting == 0 && p.Head == nil && p.Overdue == 0, "all is committed: %+v", p)
	if p.Owner == nil || p.Owner.ClientID != "orderclose" || p.Owner.Host == "" || report.Topics[0].State != "Stable" || report.Topics[0].Members != 1 {
		t.Errorf("owner %+v of %+v", p.Owner, report.Topics[0])
	}
	cancel()
	expect.NoError(t, <-done)
}

// A broken topics.yaml is named with its line.
func TestBroker_StatusAndDoctorNameTheLineOfABrokenTopicsFile(t *testing.T) {
	r := newRig(t)
	must.Do(t, os.WriteFile(r.file, []byte("buckets: [1m, 1h]\npartitions: 2\npartition: 3\n"), 0o600))
	for _, command := range []string{"status", "doctor"} {
		_, stderr, code := r.cli(command)
		expect.That(t, code == 2 && strings.Contains(stderr, r.file+":3:1"), "%s: exit %d, %s", command, code, stderr)
	}
}

func TestBroker_DoctorNamesAWrongVariable(t *testing.T) {
	r := newRig(t)
	env := map[string]string{environ.EnvBrokers: r.brokers, environ.EnvDSN: "root@tcp(127.0.0.1:1)/"}
	_, stderr, code := run(t, env, "doctor", "--config", r.file)
	expect.That(t, code == 2 && strings.Contains(stderr, environ.EnvDSN), "exit %d, %s", code, stderr)
}

func TestBroker_CommandsIgnoreInvalidValuesThatTheyDoNotUse(t *testing.T) {
	r := newRig(t)
	wrong := map[string]string{environ.EnvBrokers: r.brokers, environ.EnvRedis: "no URL", environ.EnvListen: "nowhere",
		environ.EnvHTTPSecret: "x", environ.EnvWebhookSecret: "x"}
	for _, args := range [][]string{{"topics", "apply"}, {"topics", "check"}, {"dlq", "ls"}} {
		_, stderr, code := run(t, wrong, append(args, "--config", r.file)...)
		expect.That(t, code == 0, "%v: exit %d, %q", args, code, stderr)
	}
	wrong[environ.EnvBrokers], wrong[environ.EnvDSN] = "no port", "root@tcp(127.0.0.1:1)/shop"
	for _, args := range [][]string{{"migrate", "--wait", "100ms"}, {"compensate"}, {"audit", "--from", "1h"}} { // these need only the database
		_, stderr, code := run(t, wrong, append(args, "--config", r.file)...)
		expect.That(t, code != 2, "%v: exit %d, %q", args, code, stderr)
	}
}
