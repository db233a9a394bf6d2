package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/clients"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/health"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
	"github.com/orderclose/orderclose/internal/topics"
)

// doctor runs doctor, and returns the kinds of the verdict's problems, and the checks with their states.
func (r *rig) doctor(code int) string {
	r.t.Helper()
	var result struct {
		Verdict health.Verdict
		Checks  []checkup
	}
	r.json(&result, code, "doctor")
	var all []string
	for _, p := range result.Verdict.Problems {
		all = append(all, string(p.Kind))
	}
	for _, k := range result.Checks {
		all = append(all, k.Check+" "+k.State)
		expect.That(r.t, k.State != "FOUND" || k.Fix != "", "%+v has no hint", k)
	}
	return strings.Join(all, ", ")
}

func TestBroker_DoctorFindsProblems(t *testing.T) {
	r := newRig(t)
	got := r.doctor(3)
	expect.That(t, strings.HasSuffix(got, "topics_differ"), "without topics: %s", got)
	if _, _, err := r.kafka.Apply(t.Context(), topics.Specs(r.cfg)[:1]); err != nil { // a delay topic alone
		t.Fatal(err)
	}
	got = r.doctor(3)
	expect.That(t, strings.Contains(got, "topics_differ") && strings.HasSuffix(got, "commits -"),
		"without some topics: %s", got)
	r.cli("topics", "apply")
	expect.Equal(t, r.doctor(0), "commits -", "all is well") // the broker of the test does not tell
	r.addDeadLetter("a", "failed", time.Now())
	expect.Equal(t, r.doctor(3), "letters_open, commits -", "a dead letter")
}

// limitedTo makes the broker say that a setting of its own has a value.
func (r *rig) limitedTo(setting, value string) {
	r.broker.ControlKey(int16(kmsg.DescribeConfigs), func(req kmsg.Request) (kmsg.Response, error, bool) {
		r.broker.KeepControl()
		asked := req.(*kmsg.DescribeConfigsRequest).Resources[0]
		if asked.ResourceType != kmsg.ConfigResourceTypeBroker || !slices.Equal(asked.ConfigNames, []string{setting}) {
			return nil, nil, false
		}
		res, answer := req.ResponseKind().(*kmsg.DescribeConfigsResponse), kmsg.NewDescribeConfigsResponseResource()
		answer.ResourceName, answer.ResourceType = asked.ResourceName, asked.ResourceType
		answer.Configs = append(answer.Configs, kmsg.DescribeConfigsResponseResourceConfig{Name: setting, Value: &value})
		res.Resources = append(res.Resources, answer)
		return res, nil, true
	})
}

// The broker accepts commits that are too short for a partition with many retries.
func TestBroker_DoctorFindsALimitOfABroker(t *testing.T) {
	for _, c := range []struct {
		setting, value string
		code           int
		says           []string
	}{
		{"offset.metadata.max.bytes", "4095", 3, []string{"FOUND  commits", "offset.metadata.max.bytes to 4096"}},
		{"offset.metadata.max.bytes", "4096", 0, []string{"the brokers accept the longest"}},
	} {
		t.Run(c.value, func(t *testing.T) {
			r := newRig(t)
			r.limitedTo(c.setting, c.value)
			r.cli("topics", "apply")
			out, _, code := r.cli("doctor")
			for _, says := range c.says {
				expect.That(t, code == c.code && strings.Contains(out, says), "exit %d, want %d and %q\n%s", code, c.code, says, out)
			}
		})
	}
}

func TestBroker_DoctorReportsAMissingBroker(t *testing.T) {
	out, _, code := run(t, map[string]string{environ.EnvBrokers: "127.0.0.1:1"}, "doctor", "--config", topicsYAML(t, "buckets: [10s]\n"))
	expect.That(t, code == 3 && strings.Contains(out, "127.0.0.1:1") && strings.Contains(out, "orderclose runbook kafka-is-down"), "exit %d\n%s", code, out)
}

func TestDoctor_PrintsTheChecks(t *testing.T) {
	wrong := &store.MappingError{Problems: []mapping.Problem{{Path: "due", What: "it is text", Fix: "map it as datetime"}}}
	var all []checkup
	away := fmt.Errorf("ping: %w", orderclose.ErrUnavailable)
	for i, err := range []error{nil, &skip{errors.New("no answer was fast enough")}, away, errors.New("it is old"), wrong} {
		one := check{fmt.Sprint("check ", i), "orderclose migrate", func(context.Context) (string, error) { return "it answers", err }}
		all = append(all, one.make(t.Context())...)
	}
	golden(t, "doctor_findings", func(w io.Writer) { printCheckups(w, all) })
}

// What needs a check that is not ok is not checked.
func TestDoctor_ChecksNothingThatFollows(t *testing.T) {
	failing := check{"a", "do", func(context.Context) (string, error) { return "", errors.New("no") }}
	for needed, want := range []int{2, 1} {
		expect.Equal(t, len(checked(t.Context(), needed, []check{failing, failing})), want, "checks, of which %d are needed", needed)
	}
}

func TestDoctor_NamesTheDatabaseThatItAsks(t *testing.T) {
	env := map[string]string{environ.EnvDSN: "shop:secret@tcp(127.0.0.1:1)/shop"}
	out, _, code := run(t, env, "doctor", "--config", topicsYAML(t, "buckets: [10s]\n"))
	expect.That(t, code == 3 && strings.Contains(out, "127.0.0.1:1/shop: ") && strings.Contains(out, "database away") &&
		!strings.Contains(out, "secret"), "exit %d\n%s", code, out)
}

// With the lock in the database no command reads the variable of Redis, whatever it has.
func TestDoctor_ALockInTheDatabaseNeedsNoRedis(t *testing.T) {
	file := topicsYAML(t, "buckets: [10s]\ncompensator: {lock: database}\n")
	for _, dsn := range []string{"shop:secret@tcp(127.0.0.1:1)/shop", ""} {
		env := map[string]string{environ.EnvDSN: dsn, environ.EnvBrokers: "127.0.0.1:1", environ.EnvRedis: "no URL"}
		out, _, code := run(t, env, "doctor", "--config", file)
		out = strings.ReplaceAll(out, file, "topics.yaml") // the path has the name of this test
		expect.That(t, code == 3 && !strings.Contains(strings.ToLower(out), "redis"), "with the DSN %q: exit %d\n%s", dsn, code, out)
	}
	for _, args := range [][]string{{"run", "compensator"}, {"compensate"}} {
		_, stderr, code := run(t, map[string]string{environ.EnvRedis: "no URL"}, append(args, "--config", file)...)
		expect.That(t, code == 2 && strings.Contains(stderr, environ.EnvDSN) && !strings.Contains(stderr, environ.EnvRedis),
			"%v: exit %d, %s", args, code, stderr)
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
	s := &session{Clients: clients.Clients{Store: r.shop()}, cfg: config.Default()}
	never := orderclose.Order{ID: "never", CreatedAt: time.Now().Add(-time.Minute), Due: orderclose.NeverDue}
	must.Do(t, scenario.OrdersOf(s.Store).CreateOrder(t.Context(), never, nil))
	examine := func() (all []string) {
		schema, err := s.pipeline().Schema(t.Context())
		facts := health.Facts{Checks: ops.Checks(), Answers: map[string]health.Answer[any]{string(ops.SchemaCheck): {Value: schema, At: time.Now(), Err: err}}}
		needed, checks := s.checksOfDatabase(facts, false)
		for _, k := range checked(t.Context(), needed, checks) {
			all = append(all, k.Check+" "+k.State)
		}
		return all
	}
	expect.Same(t, examine(), []string{"database ok", "tables of orders ok", "schema ok", "hosts that disappear ok", "times of orders ok",
		"writes to the database ok"}, "checks")
	must.Get(s.Store.DB().ExecContext(t.Context(), "DELETE FROM orderclose_schema WHERE version_id > 0"))(t)
	expect.Same(t, examine(), nil, "checks of a schema that the verdict names")
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
		_, err := s.checkTimes(t.Context())
		expect.Says(t, err, `"shifted" is `+what, "times")
	}
}
