package cli

import (
	"os"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

// A broker that has just started answers requests, and knows no controller yet.
func TestTopicsApply_RepeatsWhatAHalfStartedBrokerRefuses(t *testing.T) {
	r := newRig(t)
	refused := 0
	r.broker.ControlKey(int16(kmsg.CreateTopics), func(req kmsg.Request) (kmsg.Response, error, bool) {
		r.broker.KeepControl()
		if refused++; refused > 3 {
			return nil, nil, false
		}
		res := req.ResponseKind().(*kmsg.CreateTopicsResponse)
		for _, asked := range req.(*kmsg.CreateTopicsRequest).Topics {
			topic := kmsg.NewCreateTopicsResponseTopic()
			topic.Topic, topic.ErrorCode = asked.Topic, []int16{kerr.BrokerNotAvailable.Code, kerr.RequestTimedOut.Code, kerr.InvalidReplicationFactor.Code}[refused-1]
			res.Topics = append(res.Topics, topic)
		}
		return res, nil, true
	})
	var applied struct {
		Fixed []kafka.Finding `json:"fixed"`
	}
	stderr := r.json(&applied, 0, "topics", "apply")
	expect.That(t, len(applied.Fixed) == 5 && strings.Contains(stderr, "topics apply failed, will retry"), "created %v\n%s", applied.Fixed, stderr)
}

func TestTopicsApply_ExitsWith6AfterAPart(t *testing.T) {
	r := newRig(t)
	asked := 0
	r.broker.ControlKey(int16(kmsg.CreateTopics), func(req kmsg.Request) (kmsg.Response, error, bool) {
		r.broker.KeepControl()
		if asked++; asked < 3 {
			return nil, nil, false
		}
		res, topic := req.ResponseKind().(*kmsg.CreateTopicsResponse), kmsg.NewCreateTopicsResponseTopic()
		topic.Topic, topic.ErrorCode = req.(*kmsg.CreateTopicsRequest).Topics[0].Topic, kerr.TopicAuthorizationFailed.Code
		res.Topics = append(res.Topics, topic)
		return res, nil, true
	})
	out, stderr, code := r.cli("topics", "apply")
	expect.That(t, code == int(Partly) && strings.Count(out, "fixed") == 2 && strings.Contains(stderr, "order-close"), "exit %d:\n%s%s", code, out, stderr)
	out, stderr, code = r.cli("topics", "apply")
	expect.That(t, code == int(Failed) && out == "", "with nothing fixed, exit %d:\n%s%s", code, out, stderr)
}

func TestWait_TheErrorNamesTheLimit(t *testing.T) {
	t.Parallel()
	file := topicsYAML(t, "buckets: [10s]\n")
	env := map[string]string{environ.EnvBrokers: "127.0.0.1:1", environ.EnvDSN: "root@tcp(127.0.0.1:1)/shop"}
	for _, args := range [][]string{{"topics", "apply"}, {"topics", "check"}, {"migrate"}} {
		out, stderr, code := run(t, env, append(args, "--wait", "300ms", "--config", file)...)
		if code != int(TimedOut) || out != "" || !strings.Contains(stderr, "gave up after 300ms (--wait)") || !strings.Contains(stderr, "connection refused") {
			t.Errorf("%v exits with %d: %q\n%s", args, code, out, stderr)
		}
	}
}

func TestTopicsApply_ChangesATopicOfAnotherTeamOnlyByItsName(t *testing.T) {
	r := newRig(t)
	_, _, err := r.kafka.Apply(t.Context(), []kafka.TopicSpec{{Name: "order-events", Partitions: 1, Replication: 1}})
	must.That(t, err == nil, "%v", err)
	must.Get(r.kafka.Append(t.Context(), "order-events", 0, []wire.Message{{Key: []byte("7"), Value: []byte(`{"name":"Ann"}`)}}))(t)
	must.Do(t, os.WriteFile(r.file, []byte("buckets: [1m]\npartitions: 2\n"), 0o600))
	if out, stderr, code := r.cli("topics", "apply", "--change", "clients"); code != int(Usage) ||
		!strings.Contains(stderr, "topics.yaml has no topic of that name") {
		t.Errorf("a name that is not in topics.yaml exits with %d:\n%s%s", code, out, stderr)
	}
	if out, stderr, code := r.cli("topics", "apply"); code != int(Partly) || !strings.Contains(out, "orderclose topics apply --change order-events") {
		t.Errorf("without a name it exits with %d:\n%s%s", code, out, stderr)
	}
	if n, err := r.kafka.Partitions(t.Context(), "order-events"); n != 1 || err != nil {
		t.Errorf("the topic has %d partitions, %v; want 1", n, err)
	}
	out, stderr, code := r.cli("topics", "apply", "--change", "order-events")
	expect.That(t, code == 0, "with its name it exits with %d:\n%s%s", code, out, stderr)
	if out, _, code := r.cli("topics", "check"); code != int(Done) {
		t.Errorf("afterwards topics check exits with %d:\n%s", code, out)
	}
}
