package config_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/orderclose/orderclose/internal/config"
)

func TestSalvage_KeepsValidValuesAndUsesDefaultsForTheRest(t *testing.T) {
	standard := config.Default()
	topics := func(c *config.Config) (all []string) {
		for _, b := range c.Buckets {
			all = append(all, b.Topic)
		}
		return append(all, c.Topics.Close)
	}
	for content, want := range map[string][]string{
		"partition: 3\ntopics: {prefix: eu-}\nbuckets: [10s, 1m]\n":               {"eu-delay_10s", "eu-delay_1m", "eu-order-close"},
		"topics: {prefix: eu-, close: 'a b'}\nbuckets: [10s, 1m, 10ms, soon]\n":   {"eu-delay_10s", "eu-delay_1m", "eu-order-close"},
		"topics: {prefix: 'e u'}\nbuckets: [1m, 1m]\n":                            {"delay_1m", "order-close"},
		"buckets: [{length: 1m, draining: true}]\n":                               {"delay_1m", "order-close"},
		"buckets: [1m]\nodrers: {}\n":                                             {"delay_1m", "order-close"},
		"buckets: [soon]\n":                                                       topics(standard),
		"buckets: [1m\n":                                                          topics(standard),
		"buckets: [1m]\norders: {table: t}\ncloser: {kind: http}\noutbox: none\n": {"delay_1m", "order-close"},
	} {
		path := filepath.Join(t.TempDir(), "topics.yaml")
		write(t, path, content)
		c, err := config.Salvage(path)
		if err != nil || len(c.Problems) == 0 {
			t.Errorf("%q: problems %v, error %v", content, c.Problems, err)
			continue
		}
		if unknown := strings.Contains(content, "orders:") || strings.Contains(content, "odrers:") || content == "buckets: [1m\n"; c.Unknown("orders") != unknown {
			t.Errorf("%q: the orders' tables are unknown: %v", content, !unknown)
		}
		if diff := cmp.Diff(want, topics(c.Config)); diff != "" || c.Orders != nil {
			t.Errorf("%q (-want +got):\n%s", content, diff)
		}
	}
}

func TestSalvage_UnknownIsWhatTheFileDoesNotTell(t *testing.T) {
	keys := []string{"topics.close", "topics.events", "buckets", "partitions", "closer.kind"}
	for content, want := range map[string]string{
		"topics: {close: 'a b'}\n":      "topics.close",
		"topcis: {prefix: eu-}\n":       "topics.close topics.events",
		"topics: [close]\n":             "topics.close topics.events",
		"buckets: [1m, soon]\n":         "buckets",
		"partition: 3\npartitions: 2\n": "partitions",
		"closer: {batch: 0}\n":          "",
		"closer: {knid: http}\n":        "closer.kind",
		"outbox: none\n":                "",
		"buckets: [1m\n":                strings.Join(keys, " "),
		"[buckets]\n":                   strings.Join(keys, " "),
	} {
		path := filepath.Join(t.TempDir(), "topics.yaml")
		write(t, path, content)
		c, err := config.Salvage(path)
		var unknown []string
		for _, key := range keys {
			if c.Unknown(key) {
				unknown = append(unknown, key)
			}
		}
		if got := strings.Join(unknown, " "); err != nil || len(c.Problems) == 0 || got != want {
			t.Errorf("%q: unknown are %q, want %q; %v, %v", content, got, want, c.Problems, err)
		}
	}
}

func TestSalvage_OfAValidFileEqualsLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "topics.yaml")
	write(t, path, "buckets: [10s, 1m]\ndelays: {default: 2m}\n")
	want, err := config.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	got, err := config.Salvage(path)
	if diff := cmp.Diff(want, got.Config); diff != "" || len(got.Problems) > 0 || got.Unknown("orders", "topics", "closer.kind") || err != nil {
		t.Errorf("%v, %v (-want +got):\n%s", got.Problems, err, diff)
	}
	if _, err := config.Salvage(path + ".away"); err == nil {
		t.Error("a missing file gives no error")
	}
}

func TestFromEnviron_ReadsOnlyTheNamedVariables(t *testing.T) {
	env := environ{"ORDERCLOSE_KAFKA_BROKERS": "a:1", "ORDERCLOSE_REDIS_URL": "x", "ORDERCLOSE_LISTEN": "x", "ORDERCLOSE_RELEASE_URL": "x",
		"ORDERCLOSE_HTTP_SECRET": "x", "ORDERCLOSE_DB_DSN_FILE": "no/such"}
	got, err := config.FromEnviron(env.lookup, config.EnvBrokers)
	if diff := cmp.Diff(config.Servers{Brokers: []string{"a:1"}, Listen: config.DefaultListen}, got); err != nil || diff != "" {
		t.Errorf("error %v (-want +got):\n%s", err, diff)
	}
	for _, name := range []string{config.EnvRedis, config.EnvListen, config.EnvReleaseURL, config.EnvHTTPSecret, config.EnvDSN} {
		if _, err := config.FromEnviron(env.lookup, config.EnvBrokers, name); err == nil {
			t.Errorf("a wrong %s is accepted although it is used", name)
		}
	}
	delete(env, "ORDERCLOSE_KAFKA_BROKERS")
	env["ORDERCLOSE_KAFKA_TLS"] = "maybe"
	if _, err := config.FromEnviron(env.lookup, config.EnvBrokers); err == nil {
		t.Error("wrong security settings are accepted although Kafka is used")
	}
}
