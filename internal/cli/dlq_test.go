package cli

import (
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/deadletters"
	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/kafka/reads"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

// addDeadLetter appends a dead letter of the closer for an order's record.
func (r *rig) addDeadLetter(id, cause string, due time.Time, change ...func(*wire.Message)) {
	r.t.Helper()
	m := must.Get(wire.Record{Order: orderclose.Order{ID: id, CreatedAt: due.Add(-time.Hour), Due: due}, Release: due, Attempt: 3}.Encode())(r.t)
	m.Topic, m.Offset = r.cfg.Topics.Close, 99
	for _, c := range change {
		c(&m)
	}
	dead := wire.DeadLetter(m, "closer", cause, "closing it failed")
	must.Get(r.kafka.Append(r.t.Context(), r.cfg.Topics.DeadLetter, 0, []wire.Message{dead}))(r.t)
}

// records reads all partitions of a topic.
func (r *rig) records(topic string) (all []wire.Message) {
	r.t.Helper()
	spans := must.Get(reads.Log{Cluster: r.kafka}.Window(r.t.Context(), topic, kafka.LogStart, kafka.LogEnd))(r.t)
	for _, s := range spans {
		must.Do(r.t, reads.Log{Cluster: r.kafka}.ReadSpan(r.t.Context(), topic, s, func(records []wire.RawRecord) error {
			for _, record := range records {
				m, err := record.Message()
				if err != nil {
					return err
				}
				all = append(all, m)
			}
			return nil
		}))
	}
	return all
}

func TestBroker_DeadLettersAreListedShownAndSentAgain(t *testing.T) {
	r := newRig(t)
	r.cli("topics", "apply")
	due := time.Now().Add(-time.Minute)
	r.addDeadLetter("due", "failed", due)
	r.addDeadLetter("waiting", "not_found", time.Now().Add(2*time.Hour))
	r.addDeadLetter("broken", "bad_value", due, func(m *wire.Message) { m.Value = []byte("\xff{") })

	var list listed
	r.json(&list, 0, "dlq", "ls", "--limit", "2")
	expect.That(t, len(list.Letters) == 2 && list.More && list.Open["failed"] == 1, "the newest two: %+v", list)
	list = listed{}
	r.json(&list, 0, "dlq", "ls", "--open", "--order", "due", "--stage", "closer", "--since", "1h")
	expect.That(t, len(list.Letters) == 1, "by order: %+v", list)
	out, _, code := r.cli("dlq", "show", "0/0")
	for _, want := range []string{"not known", "failed", "closing it failed", "order-close/0/99", "attempt", `order_id`} {
		expect.That(t, code == 0 && strings.Contains(out, want), "show exits with %d and does not contain %q:\n%s", code, want, out)
	}
	var d struct {
		Base64 []byte `json:"value_base64"`
		Order  string `json:"order_problem"`
	}
	r.json(&d, 0, "dlq", "show", "0/2")
	expect.That(t, string(d.Base64) == "\xff{" && d.Order != "", "%+v", d)
	if _, stderr, code := r.cli("dlq", "show", "0/3"); code != 4 || !strings.Contains(stderr, "0/3") {
		t.Errorf("exit %d, %s", code, stderr)
	}

	out, _, _ = r.cli("replay", "--dead-letters", "--from", "1h")
	printed := strings.Contains(out, "orderclose replay --dead-letters --from ") && strings.Contains(out, "would send 3 records again")
	expect.That(t, printed && len(r.records("delay_1m")) == 0, "the plan does not print the command, or was carried out:\n%s", out)
	for again := range 2 {
		var result ops.ReplayResult
		r.json(&result, 6, "replay", "--dead-letters", "--from", "1h", "--yes")
		sent := len(r.records("delay_1m")) == again+1 && len(r.records("delay_1h")) == again+1
		expect.That(t, sent && result.Sent == 2 && result.Refused == 1 && result.Refusals[0].Cause == "bad_value", "%+v", result)
	}
}

// The error names the server that does not answer, and not the failed request.
func TestKafka_IsNamedIfItDoesNotAnswer(t *testing.T) {
	file := topicsYAML(t, "buckets: [10s]\n")
	for _, args := range [][]string{
		{"dlq", "ls"}, {"dlq", "show", "0/1"},
		{"replay", "--from", "2h", "--to", "1h"}, {"status"},
	} {
		want := 1
		if args[0] == "status" { // status checks each topic by itself, and could check none
			want = 6
		}
		out, stderr, code := run(t, map[string]string{environ.EnvBrokers: "127.0.0.1:1"}, append(args, "--config", file)...)
		expect.That(t, code == want && out == "" && strings.HasPrefix(stderr, "orderclose: kafka at [127.0.0.1:1] does not answer: "),
			"%v: exit %d, %q, %q", args, code, out, stderr)
	}
}

func sampleLetters() []deadletters.Letter {
	return []deadletters.Letter{
		{At: deadletters.Position{Offset: 7}, AppendedAt: at, Cause: "not_found", Stage: "closer", Key: "order-17", Detail: "the database has no such order",
			Source: deadletters.Source{Topic: "order-close", Partition: 3, Offset: 900}},
		{At: deadletters.Position{Offset: 9}, AppendedAt: at.Add(time.Minute), Cause: "bad_value", Stage: "relay", Key: "a\x1b[31m\n",
			Detail: strings.Repeat("long ", 30),
			Source: deadletters.Source{Topic: "delay_5m", Partition: 11, Offset: 1 << 40}, Order: deadletters.OrderEnded},
	}
}

func TestDLQ_ListTable(t *testing.T) {
	golden(t, "dlq_ls", func(w io.Writer) {
		printLetters(w, listed{"order-close-dead-letter", deadletters.List{Letters: sampleLetters(), Open: map[string]int{"not_found": 1}, More: true}})
	})
}

func TestDLQ_JSONHasPositionsInTheFormOfTheArguments(t *testing.T) {
	b, err := json.Marshal(sampleLetters()[0])
	expect.That(t, err == nil && strings.Contains(string(b), `"at":"0/7"`), "%s, %v", b, err)
	var l deadletters.Letter
	if err := json.Unmarshal(b, &l); err != nil || l.At != (deadletters.Position{Offset: 7}) {
		t.Errorf("%+v, %v", l, err)
	}
}
