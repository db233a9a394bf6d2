package cli

import (
	"errors"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/clients"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
)

func TestBroker_DoctorFindsProblems(t *testing.T) {
	r := newRig(t)
	var result struct{ Checks []checkup }
	state := func() string {
		var all []string
		for _, k := range result.Checks {
			word := "found"
			if k.OK {
				word = "ok"
			} else if k.Skipped {
				word = "skipped"
			} else if k.Today {
				word = "today"
			}
			all = append(all, k.Check+" "+word)
			if word == "found" && k.Fix == "" {
				t.Errorf("%+v has no hint", k)
			}
		}
		return strings.Join(all, ", ")
	}
	r.json(&result, 3, "doctor")
	if got := state(); got != "installation found" || !strings.HasSuffix(result.Checks[0].Fix, "topics apply") {
		t.Errorf("without topics: %s, %+v", got, result.Checks)
	}
	if _, _, err := r.kafka.Apply(t.Context(), ops.TopicSpecs(r.cfg)[:1]); err != nil { // a delay topic alone
		t.Fatal(err)
	}
	result.Checks = nil
	r.json(&result, 3, "doctor")
	if got := state(); !strings.Contains(got, "kafka ok, topics found, dead letters skipped") ||
		!strings.HasSuffix(got, "database skipped, clocks skipped, redis skipped, topic unread found, not answered today") {
		t.Errorf("without some topics: %s", got)
	}
	r.cli("topics", "apply")
	result.Checks = nil
	if r.json(&result, 0, "doctor"); strings.Contains(state(), "found") {
		t.Errorf("all is well: %s", state())
	}
	r.addDeadLetter("a", "failed", time.Now())
	result.Checks = nil
	if r.json(&result, 3, "doctor"); !strings.Contains(state(), "dead letters found") || !strings.Contains(result.Checks[2].What, "1 failed") {
		t.Errorf("a dead letter: %s, %+v", state(), result.Checks)
	}
}

// The broker accepts commits that are too short for a partition with many retries.
func TestBroker_DoctorFindsALimitOfCommits(t *testing.T) {
	r := newRig(t)
	limit := "4095"
	r.broker.ControlKey(int16(kmsg.DescribeConfigs), func(req kmsg.Request) (kmsg.Response, error, bool) {
		r.broker.KeepControl()
		asked := req.(*kmsg.DescribeConfigsRequest).Resources[0]
		if asked.ResourceType != kmsg.ConfigResourceTypeBroker {
			return nil, nil, false
		}
		res, answer := req.ResponseKind().(*kmsg.DescribeConfigsResponse), kmsg.NewDescribeConfigsResponseResource()
		answer.ResourceName, answer.ResourceType = asked.ResourceName, asked.ResourceType
		answer.Configs = append(answer.Configs, kmsg.DescribeConfigsResponseResourceConfig{Name: "offset.metadata.max.bytes", Value: &limit})
		res.Resources = append(res.Resources, answer)
		return res, nil, true
	})
	r.cli("topics", "apply")
	if out, _, code := r.cli("doctor"); code != 3 || !strings.Contains(out, "FOUND  commits") || !strings.Contains(out, "offset.metadata.max.bytes to 4096") {
		t.Errorf("a limit of %s: exit %d\n%s", limit, code, out)
	}
	limit = "4096"
	if out, _, code := r.cli("doctor"); code != 0 || !strings.Contains(out, "the brokers accept the longest") {
		t.Errorf("a limit of %s: exit %d\n%s", limit, code, out)
	}
}

func TestBroker_DoctorReportsAMissingBroker(t *testing.T) {
	out, _, code := run(t, map[string]string{config.EnvBrokers: "127.0.0.1:1"}, "doctor", "--config", topicsYAML(t, "buckets: [10s]\n"))
	expect.That(t, code == 3 && strings.Contains(out, "127.0.0.1:1") && strings.Contains(out, "orderclose runbook kafka-is-down"), "exit %d\n%s", code, out)
}

func TestDoctor_PrintsTheFirstCommandsOfTheSectionThatAFixNames(t *testing.T) {
	golden(t, "doctor_findings", func(w io.Writer) {
		printCheckups(w, []checkup{
			passed("kafka", "%s", "127.0.0.1:1 answers"),
			inRunbook("database", "ping the database: no answer", databaseDown),
			finding("schema", "it is old", "run orderclose migrate"),
		})
	})
}

func TestDoctor_NamesTheDatabaseThatItAsks(t *testing.T) {
	env := map[string]string{config.EnvDSN: "shop:secret@tcp(127.0.0.1:1)/shop"}
	out, _, code := run(t, env, "doctor", "--config", topicsYAML(t, "buckets: [10s]\n"))
	expect.That(t, code == 3 && strings.Contains(out, "127.0.0.1:1/shop: ping the database") && !strings.Contains(out, "secret"), "exit %d\n%s", code, out)
}

// With the lock in the database no command reads the variable of Redis, whatever it has.
func TestDoctor_ALockInTheDatabaseNeedsNoRedis(t *testing.T) {
	file := topicsYAML(t, "buckets: [10s]\ncompensator: {lock: database}\n")
	for _, dsn := range []string{"shop:secret@tcp(127.0.0.1:1)/shop", ""} {
		env := map[string]string{config.EnvDSN: dsn, config.EnvBrokers: "127.0.0.1:1", config.EnvRedis: "no URL"}
		out, _, code := run(t, env, "doctor", "--config", file)
		out = strings.ReplaceAll(out, file, "topics.yaml") // the path has the name of this test
		if code != 3 || strings.Contains(strings.ToLower(out), "redis") || !regexp.MustCompile(`(?m)^ *(skip|-)\S* +lock `).MatchString(out) {
			t.Errorf("with the DSN %q: exit %d\n%s", dsn, code, out)
		}
	}
	for _, args := range [][]string{{"run", "compensator"}, {"compensate"}} {
		_, stderr, code := run(t, map[string]string{config.EnvRedis: "no URL"}, append(args, "--config", file)...)
		if code != 2 || !strings.Contains(stderr, config.EnvDSN) || strings.Contains(stderr, config.EnvRedis) {
			t.Errorf("%v: exit %d, %s", args, code, stderr)
		}
	}
}

// Before the first migrate and topics apply, doctor says that they are missing, and nothing that follows from it.
func TestDoctor_OfANewInstallationNamesTheCommands(t *testing.T) {
	none, old := &store.SchemaError{Schema: store.Schema{Wants: 9}}, &store.SchemaError{Schema: store.Schema{Has: 3, Wants: 9}}
	noTopics := ops.Problem{Is: ops.Kind{Name: ops.NoTopics}}
	sql, log := &store.Store{}, &kafka.Cluster{}
	for _, c := range []struct {
		with     clients.Clients
		schema   error
		problems []ops.Problem
		want     string
	}{
		{clients.Clients{Store: sql, Kafka: log}, none, []ops.Problem{noTopics}, "orderclose migrate, then orderclose topics apply"},
		{clients.Clients{Store: sql}, none, nil, "orderclose migrate"},
		{clients.Clients{Kafka: log}, nil, []ops.Problem{noTopics}, "orderclose topics apply"},
		{clients.Clients{Store: sql, Kafka: log}, none, nil, ""}, // there are topics
		{clients.Clients{Store: sql, Kafka: log}, old, []ops.Problem{noTopics}, ""},
		{clients.Clients{Store: sql}, errors.New("no answer"), nil, ""},
	} {
		e := exam{session: &session{Clients: c.with}, verdict: ops.Verdict{Problems: c.problems},
			Facts: ops.Facts{Answers: map[string]ops.Answer[any]{string(ops.AskSchema): {Err: c.schema}}}}
		expect.Equal(t, e.newInstallation(), c.want, "%+v", c)
	}
}

func TestMigrate_SaysWhatItDid(t *testing.T) {
	for want, has := range map[string][2]int64{
		"the schema is created (version 9)":             {0, 9},
		"the schema is migrated from version 3 to 9":    {3, 9},
		"the schema is up to date (version 9)":          {9, 9},
		"the schema has version 12, of a newer program": {0, 12},
	} {
		got := migrated(store.Schema{Has: has[0], Wants: 9}, store.Schema{Has: has[1], Wants: 9})
		expect.That(t, strings.HasPrefix(got, want), "%v: %s", has, got)
	}
}

func TestDoctor_AHealthyDatabase(t *testing.T) {
	r := &rig{t: t}
	s := &session{Clients: clients.Clients{Store: r.shop()}}
	never := orderclose.Order{ID: "never", CreatedAt: time.Now().Add(-time.Minute), Due: orderclose.NeverDue}
	must.Do(t, scenario.OrdersOf(s.Store).CreateOrder(t.Context(), never, nil))
	examine := func() []checkup {
		schema, err := s.pipeline().Schema(t.Context())
		facts := ops.Facts{Checks: ops.Checks(), Answers: map[string]ops.Answer[any]{string(ops.AskSchema): {Value: schema, Err: err}}}
		return exam{session: s, Facts: facts, verdict: ops.Judge(facts)}.checkDatabase(t.Context())
	}
	all := examine()
	err := checkupsError(all)
	expect.That(t, err == nil && len(all) == 5, "%+v; %v", all, err)
	times := s.checkTimes(t.Context(), "times of orders")
	expect.That(t, times.OK, "an order that is never due: %+v", times)
	must.Get(s.Store.DB().ExecContext(t.Context(), "DELETE FROM orderclose_schema WHERE version_id > 2"))(t)
	all = examine()
	expect.That(t, !all[1].OK && strings.Contains(all[1].What, "run orderclose migrate") && all[1].Fix == "orderclose runbook the-schema-differs", "%+v", all)
}

// One order was written in the time of Shanghai into columns of UTC, another only its creation.
func TestDoctor_FindsTimesOfAnotherZone(t *testing.T) {
	for what, shift := range map[string][2]time.Duration{
		"created in the future":     {8 * time.Hour, 8 * time.Hour},
		"due before it was created": {-time.Minute, -5 * time.Hour},
	} {
		r := &rig{t: t}
		s := &session{Clients: clients.Clients{Store: r.shop()}}
		o := orderclose.Order{ID: "shifted", CreatedAt: time.Now().Add(shift[0]), Due: time.Now().Add(30*time.Minute + shift[1])}
		must.Do(t, scenario.OrdersOf(s.Store).CreateOrder(t.Context(), o, nil))
		if got := s.checkTimes(t.Context(), "times of orders"); got.OK || !strings.Contains(got.What, what) ||
			!strings.Contains(got.What, `"shifted"`) || got.Fix == "" {
			t.Errorf("%+v, want that an order is %s", got, what)
		}
	}
}

func TestDoctor_LimitOfClocks(t *testing.T) {
	expect.That(t, clockCheckup("x", ops.ClockSkewWarning).OK == true && !clockCheckup("x", -ops.ClockSkewWarning-1).OK, "the limit")
}

// With a service that closes the orders orderclose writes no events: a reader of events must learn
// where they come from.
func TestDoctor_SaysThatEventsComeFromTheServiceThatCloses(t *testing.T) {
	t.Parallel() // each command waits a second for the broker
	env := map[string]string{config.EnvBrokers: "127.0.0.1:1"}
	const want = "ok     events    orders are closed by a service: events come from it"
	out, _, _ := run(t, env, "doctor", "--config", topicsYAML(t, "buckets: [10s]\ncloser: {http: {url: \"https://shop/close\"}}\n"))
	expect.That(t, strings.Contains(out, want), "%s does not contain %q", out, want)
	out, _, _ = run(t, env, "doctor", "--config", topicsYAML(t, "buckets: [10s]\n"))
	expect.That(t, !strings.Contains(out, "events"), "orders are closed by SQL: %s", out)
}
