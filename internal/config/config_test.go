package config_test

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

const shipped = "../../topics.yaml"

func TestDefault_EqualsTheShippedFile(t *testing.T) {
	c := must.Get(config.Load(shipped))(t)
	diff := cmp.Diff(config.Default(), c)
	expect.That(t, diff == "", "Default() and topics.yaml differ (-Default +file):\n%s", diff)
}

func TestDefault_EqualsTheDocumentation(t *testing.T) {
	want := &config.Config{
		Delays: orderclose.Delays{
			Default:    30 * time.Minute,
			ByCategory: map[string]time.Duration{"virtual": 5 * time.Minute, "physical": 30 * time.Minute},
		},
		MaxDelay: 720 * time.Hour,
		Buckets: orderclose.Buckets{
			{Topic: "delay_10s", Length: 10 * time.Second},
			{Topic: "delay_1m", Length: time.Minute},
			{Topic: "delay_5m", Length: 5 * time.Minute},
			{Topic: "delay_30m", Length: 30 * time.Minute},
			{Topic: "delay_2h", Length: 2 * time.Hour},
			{Topic: "delay_12h", Length: 12 * time.Hour},
		},
		Topics: config.Topics{Close: "order-close", DeadLetter: "order-close-dead-letter", Events: "order-events",
			Control: "order-close-control", Delay: "delay_{bucket}"},
		Partitions:  12,
		Replication: 1,
		Kafka:       config.Kafka{SessionTimeout: 30 * time.Second},
		Compensator: config.Compensator{
			Period: time.Hour, Rate: 5000,
			Lock: config.Lock{Kind: config.LockRedis, Key: "lock:scan_unpaid_orders"},
		},
		Closer: config.Closer{Kind: config.KindSQL, HTTP: config.Service{Batch: 200},
			Payment: config.PaymentService{Batch: 100, Recheck: []time.Duration{10 * time.Minute, time.Hour, 24 * time.Hour}, RecheckRate: 20}},
	}
	expect.Same(t, config.Default(), want, "default")
}

func TestDefault_ReturnsACopyEachTime(t *testing.T) {
	c := config.Default()
	c.Buckets[0].Topic = "other"
	c.Delays.ByCategory["virtual"] = time.Second
	expect.That(t, config.Default().Buckets[0].Topic != "other" && config.Default().Delays.ByCategory["virtual"] != time.Second,
		"changing one default configuration changes the next")
}

func TestParse_RequiresOnlyBuckets(t *testing.T) {
	c := parse(t, "buckets: [1m]")
	want := config.Default()
	want.Buckets = orderclose.Buckets{{Topic: "delay_1m", Length: time.Minute}}
	want.Delays.ByCategory = map[string]time.Duration{} // the file gives no category a delay
	expect.Same(t, c, want, "configuration")
}

func TestParse_ReadsEveryKey(t *testing.T) {
	c := parse(t, `
topics: {prefix: eu.}
partitions: 3
replication: 2
kafka: {session_timeout: 6s}
buckets: [1d, 1.5s]
delays: {default: 2m, max: 2d, categories: {a b: 1d12h, 42: 90s, c.d: 3s}, rules: [
  {match: {category: [42, a b], attributes: {pay: [card, 3], vip: "true"}}, after: 1m, grace: 5s},
  {match: {category: [c.d]}, remind: [1s, 2s]},
  {match: {attributes: {pay: bank}}, after: never}]}
compensator: {period: 10s, rate: 77, lock: database}
closer: {target_latency: 1s, http: {url: "https://shop/close", batch: 7}, payment: {batch: 8, recheck: [5m, 30d], recheck_rate: 9}}
accept: [long_period]
sync: never
`)
	want := &config.Config{
		Delays: orderclose.Delays{
			Default:    2 * time.Minute,
			ByCategory: map[string]time.Duration{"a b": 36 * time.Hour, "42": 90 * time.Second, "c.d": 3 * time.Second},
			Rules: []orderclose.Rule{
				{
					Match: orderclose.Match{Categories: []string{"42", "a b"}, Attributes: map[string][]string{"pay": {"card", "3"}, "vip": {"true"}}},
					After: time.Minute, Grace: 5 * time.Second, Line: 8,
				},
				{Match: orderclose.Match{Categories: []string{"c.d"}}, Remind: []time.Duration{2 * time.Second, time.Second}, Line: 9},
				{Match: orderclose.Match{Attributes: map[string][]string{"pay": {"bank"}}}, Never: true, Line: 10},
			},
		},
		MaxDelay: 48 * time.Hour,
		Buckets:  orderclose.Buckets{{Topic: "eu.delay_1.5s", Length: 1500 * time.Millisecond}, {Topic: "eu.delay_24h", Length: 24 * time.Hour}},
		Topics: config.Topics{
			Prefix: "eu.", Close: "eu.order-close", DeadLetter: "eu.order-close-dead-letter", Events: "eu.order-events",
			Control: "eu.order-close-control", Delay: "eu.delay_{bucket}",
		},
		Partitions:  3,
		Replication: 2,
		Sync:        config.SyncNever,
		Kafka:       config.Kafka{SessionTimeout: 6 * time.Second},
		Compensator: config.Compensator{
			Period: 10 * time.Second, Rate: 77,
			Lock: config.Lock{Kind: config.LockDatabase, Key: "eu.lock:scan_unpaid_orders"},
		},
		Closer: config.Closer{
			TargetLatency: time.Second, Kind: config.KindHTTP, HTTP: config.Service{URL: "https://shop/close", Batch: 7},
			Payment: config.PaymentService{Batch: 8, Recheck: []time.Duration{5 * time.Minute, 30 * 24 * time.Hour}, RecheckRate: 9},
		},
		Accept: []string{config.LongPeriod},
	}
	expect.Same(t, c, want, "configuration")
}

// Without the key sync, the only copy of a record is on disk where it waits, and nothing may be lost if perhaps no database has the orders.
func TestFlushMessages_IsDecidedByTheFileAlone(t *testing.T) {
	all, none, waiting := []int{1, 1, 1, 1, 1}, []int{0, 0, 0, 0, 0}, []int{1, 1, 1, 1000, 0}
	const service = "closer: {http: {url: 'https://shop.example/close'}}\n"
	for text, want := range map[string][]int{
		"": waiting, "replication: 2\n": none, "replication: 3\n": none, service: all, "replication: 3\n" + service: none,
		"sync: always\n": all, "sync: always\nreplication: 3\n": all, "sync: always\n" + service: all, "sync: always\nreplication: 3\n" + service: all,
		"sync: never\n": none, "sync: never\nreplication: 3\n": none, "sync: never\n" + service: none, "sync: never\nreplication: 3\n" + service: none,
	} {
		c := parse(t, "buckets: [1m]\n"+text)
		var got []int
		for _, topic := range []string{c.Buckets[0].Topic, c.Topics.DeadLetter, c.Topics.Events, c.Topics.Close, c.Topics.Control} {
			got = append(got, c.FlushMessages(topic))
		}
		expect.Same(t, got, want, "of bucket, dead letters, events, close and control topic with %q", text)
	}
}

func TestParse_AcceptsAliasesAndEmptySections(t *testing.T) {
	c := parse(t, `
buckets: &all [&short 1m, 5m]
delays:
  default: *short
  categories: # none yet
topics:
`)
	expect.That(t, c.Delays.Default == time.Minute && len(c.Delays.ByCategory) == 0 && c.Topics.Close == "order-close", "got %+v", c)
}

func TestParse_AcceptsDelaysBelowTheSmallestBucketAndWindowsLineEnds(t *testing.T) {
	c := parse(t, "buckets: [1m]\r\ndelays:\r\n  default: 5s\r\n\r\n")
	expect.Equal(t, c.Delays.Default, 5*time.Second, "default delay")
}

func TestAccepts_LiftsExactlyTheNamedRefusals(t *testing.T) {
	const file = "buckets: [5m]\ncompensator: {period: 2d}\ncloser: {payment: {url: \"http://pay.example/x\"}}\naccept: [%s]\n"
	lifted := []string{config.LongSmallestBucket, config.LongPeriod, config.WithoutTLS}
	for i, name := range lifted {
		_, err := config.Parse("t", fmt.Appendf(nil, file, strings.Join(slices.Delete(slices.Clone(lifted), i, i+1), ", ")))
		expect.That(t, err != nil && !strings.Contains(err.Error(), "\n") && strings.HasSuffix(err.Error(), ", or add "+name+" to accept"),
			"without %s: %v", name, err)
	}
	c := parse(t, fmt.Sprintf(file, strings.Join(lifted, ", ")))
	expect.That(t, c.Accepts(config.LongPeriod) && !c.Accepts("far_due"), "it accepts %v", c.Accept)
	for _, host := range []string{"127.0.0.1:80", "localhost", "[::1]:8080"} {
		parse(t, "buckets: [1m]\ncloser: {payment: {url: \"http://"+host+"/x\"}}\n")
	}
}

func TestGroups_ContainThePrefixAndTheTopic(t *testing.T) {
	for prefix, want := range map[string][]string{
		"":       {"orderclose-relay-delay_1m", "orderclose-closer-order-close", "orderclose-trial-order-close"},
		"oc_7f_": {"oc_7f_orderclose-relay-delay_1m", "oc_7f_orderclose-closer-order-close", "oc_7f_orderclose-trial-order-close"},
	} {
		c := parse(t, "buckets: [1m]\ntopics: {prefix: \""+prefix+"\"}")
		got := []string{c.RelayGroup(c.Buckets[0]), c.CloserGroup(), c.Group("trial", c.Topics.Close)}
		expect.Same(t, got, want, "prefix %q", prefix)
	}
}

func TestLoad_NamesTheMissingFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "topics.yaml")
	_, err := config.Load(path)
	expect.That(t, errors.Is(err, fs.ErrNotExist) && strings.Contains(err.Error(), path), "got %v", err)
}

func TestLoad_RefusesAFileThatIsTooLarge(t *testing.T) {
	path := filepath.Join(t.TempDir(), "topics.yaml")
	text := string(must.Get(os.ReadFile(shipped))(t))
	text += strings.Repeat("#", 1<<20-len(text))
	write(t, path, text)
	must.Get(config.Load(path))(t)
	write(t, path, text+"#")
	want := "read the configuration: read " + path + ": it is larger than 1024 KiB; pass the path of topics.yaml, as with --config or in ORDERCLOSE_CONFIG"
	_, err := config.Load(path)
	expect.That(t, err != nil && err.Error() == want, "one byte more: %v", err)
}

func parse(t *testing.T, text string) *config.Config {
	t.Helper()
	c, err := config.Parse("topics.yaml", []byte(text))
	must.That(t, err == nil, "refused:\n%v", err)
	return c
}

func TestBucketOf_AcceptsOnlyTopicsOfBuckets(t *testing.T) {
	topics := config.Topics{Delay: "eu.wait-{bucket}-x"}
	for name, want := range map[string]time.Duration{
		"eu.wait-1m30s-x": 90 * time.Second, "eu.wait-720h-x": 720 * time.Hour,
		"eu.wait-90s-x": 0, "eu.wait-30d-x": 0, "eu.wait-x": 0, "wait-1m-x": 0, "eu.wait-1m": 0, "eu.wait-10ms-x": 0,
	} {
		b, ok := topics.BucketOf(name)
		expect.That(t, ok == (want > 0) && b.Length == want && (!ok || b.Topic == name && topics.OfBucket(b.Length) == name),
			"%s: %+v, %v, want %v", name, b, ok, want)
	}
}

func TestFromEnviron_ReadsOnlyTheNamedVariables(t *testing.T) {
	env := environ{"ORDERCLOSE_KAFKA_BROKERS": "a:1", "ORDERCLOSE_REDIS_URL": "x", "ORDERCLOSE_LISTEN": "x",
		"ORDERCLOSE_HTTP_SECRET": "x", "ORDERCLOSE_DB_DSN_FILE": "no/such"}
	got, err := config.FromEnviron(env.lookup, config.EnvBrokers)
	diff := cmp.Diff(config.Servers{Brokers: []string{"a:1"}, Listen: config.DefaultListen}, got)
	expect.That(t, err == nil && diff == "", "error %v (-want +got):\n%s", err, diff)
	for _, name := range []string{config.EnvRedis, config.EnvListen, config.EnvHTTPSecret, config.EnvDSN} {
		_, err := config.FromEnviron(env.lookup, config.EnvBrokers, name)
		expect.That(t, err != nil, "a wrong %s is accepted although it is used", name)
	}
	delete(env, "ORDERCLOSE_KAFKA_BROKERS")
	env["ORDERCLOSE_KAFKA_TLS_CA_FILE"] = "no/such"
	if _, err := config.FromEnviron(env.lookup, config.EnvBrokers); err == nil {
		t.Error("wrong security settings are accepted although Kafka is used")
	}
}

// A process without Kafka needs no buckets. An empty file may be one that is just being written.
func TestParse_WithoutKafkaNeedsNoBuckets(t *testing.T) {
	const file = "delays: {default: 5m}\n"
	_, err := config.Parse("t", []byte(file))
	expect.Says(t, err, "no bucket", "with Kafka")
	c := must.Get(config.Parse("t", []byte(file), config.WithoutKafka()))(t)
	expect.That(t, len(c.Buckets) == len(config.Default().Buckets) && c.Delays.Default == 5*time.Minute, "the buckets are %v", c.Buckets)
	own := must.Get(config.Parse("t", []byte(file+"buckets: [10s]\n"), config.WithoutKafka()))(t)
	expect.That(t, len(own.Buckets) == 1, "the buckets are %v", own.Buckets)
	for _, text := range []string{"", "# later\n", "buckets: []\n", "bucket: [10s]\n"} {
		_, err := config.Parse("t", []byte(text), config.WithoutKafka())
		expect.That(t, err != nil, "%q is accepted", text)
	}
}

// The format of the log is that of the flag, or else of the variable.
func TestLogHandler_TakesTheFormat(t *testing.T) {
	lookup := func(v string) func(string) (string, bool) { return func(string) (string, bool) { return v, v != "" } }
	for _, c := range []struct{ flag, variable, says, fails string }{
		{"", "", "level=INFO msg=x", ""}, {"json", "", `"msg":"x"`, ""}, {"", "json", `"msg":"x"`, ""}, {"text", "json", "msg=x", ""},
		{"xml", "", "", `--log-format is "xml"`}, {"", "xml", "", config.EnvLogFormat + ` is "xml"`},
	} {
		var out strings.Builder
		h, err := config.LogHandler(&out, c.flag, lookup(c.variable), nil)
		if c.fails != "" {
			expect.Says(t, err, c.fails, "%+v", c)
			continue
		}
		must.Do(t, err)
		slog.New(h).Info("x")
		expect.That(t, strings.Contains(out.String(), c.says), "%+v: %s", c, out.String())
	}
}
