package config_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

const shipped = "../../topics.yaml"

func TestDefault_EqualsTheShippedFile(t *testing.T) {
	c := must.Get(config.Load(shipped))(t)
	expect.Same(t, c, config.Default(), "Default() and topics.yaml differ")
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
			Delay: "delay_{bucket}"},
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
			Delay: "eu.delay_{bucket}",
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
	all, none, waiting := []int{1, 1, 1, 1}, []int{0, 0, 0, 0}, []int{1, 1, 1, 1000}
	const service = "closer: {http: {url: 'https://shop.example/close'}}\n"
	for text, want := range map[string][]int{
		"": waiting, "replication: 2\n": none, "replication: 3\n": none, service: all, "replication: 3\n" + service: none,
		"sync: always\n": all, "sync: always\nreplication: 3\n": all, "sync: always\n" + service: all, "sync: always\nreplication: 3\n" + service: all,
		"sync: never\n": none, "sync: never\nreplication: 3\n": none, "sync: never\n" + service: none, "sync: never\nreplication: 3\n" + service: none,
	} {
		c := parse(t, "buckets: [1m]\n"+text)
		var got []int
		for _, topic := range []string{c.Buckets[0].Topic, c.Topics.DeadLetter, c.Topics.Events, c.Topics.Close} {
			got = append(got, c.FlushMessages(topic))
		}
		expect.Same(t, got, want, "of bucket, dead letters, events and close topic with %q", text)
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
	must.Do(t, os.WriteFile(path, []byte(text), 0o600))
	must.Get(config.Load(path))(t)
	must.Do(t, os.WriteFile(path, []byte(text+"#"), 0o600))
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

// A process without Kafka needs no buckets. An empty file may be one that is just being written.
func TestParse_WithoutKafkaNeedsNoBuckets(t *testing.T) {
	const file = "delays: {default: 5m}\n"
	_, err := config.Parse("t", []byte(file))
	expect.Says(t, err, "no bucket", "with Kafka")
	c := must.Get(config.Parse("t", []byte(file), config.WithoutKafka))(t)
	expect.That(t, len(c.Buckets) == len(config.Default().Buckets) && c.Delays.Default == 5*time.Minute, "the buckets are %v", c.Buckets)
	own := must.Get(config.Parse("t", []byte(file+"buckets: [10s]\n"), config.WithoutKafka))(t)
	expect.That(t, len(own.Buckets) == 1, "the buckets are %v", own.Buckets)
	for _, text := range []string{"", "# later\n", "buckets: []\n", "bucket: [10s]\n"} {
		_, err := config.Parse("t", []byte(text), config.WithoutKafka)
		expect.That(t, err != nil, "%q is accepted", text)
	}
}

func TestParse_RefusesWrongSettingsOfTheCloser(t *testing.T) {
	for _, row := range []struct{ closer, want string }{
		{"{http: {url: shop/close}}", `2:22: closer.http.url: it is not http://host/path or https://host/path; write it such as ` +
			`https://shop.example/orderclose/close`},
		{"{http: {url: \"http://u:p@a/\"}}", `2:22: closer.http.url: it holds a user or password; requests are signed instead; write it such as ` +
			`https://shop.example/orderclose/close`},
		{"{http: {url: \"https://a/\", batch: 0}}", `2:43: closer.http.batch: 0 is out of range; write one from 1 to 999`},
		{"{http: {url: \"https://a/\"}, payment: {url: \"http://a/\"}}",
			`2:52: closer.payment.url: with closer.http.url this process does not ask the payment provider; let the service ask, and answer payment_pending while it ` +
				`does not know; then remove this`},
		{"{payment: {url: 7}}", `2:25: closer.payment.url: 7 is read as a value other than text; write it in quotes, "7"`},
		{"{payment: {cancel: true}}", `2:28: closer.payment.url: closer.payment.cancel is true, but there is no url; set it to the URL of the ` +
			`service that cancels payments`},
		{"{payment: {url: \"https://a/\", cancel: always}}", `2:47: closer.payment.cancel: "always" is neither true nor false; write true or false`},
		{"{http: {url: \"https://a/\", cancel: true}}", `2:36: closer.http: unknown key "cancel"; known here: batch, url`},
		{"{payment: {recheck: 10m}}", `2:29: closer.payment.recheck: want a list, found "10m"; write it as [10m, 1h, 24h]`},
		{"{payment: {recheck: [299s]}}", `2:30: closer.payment.recheck[0]: 4m59s is out of range, or not longer than the one before it; write ascending ` +
			`durations from 5m to 30d`},
		{"{payment: {recheck: [1h, 31d]}}", `2:34: closer.payment.recheck[1]: 31d is out of range, or not longer than the one before it; write ascending ` +
			`durations from 5m to 30d`},
		{"{payment: {recheck: [1h, 60m]}}", `2:34: closer.payment.recheck[1]: 1h is out of range, or not longer than the one before it; write ascending ` +
			`durations from 5m to 30d`},
		{"{payment: {recheck_rate: 0}}", `2:34: closer.payment.recheck_rate: 0 is out of range; write one from 1 to 1000000`},
		{"{payment: {uri: x}}", `2:20: closer.payment: unknown key "uri"; did you mean url?`},
	} {
		_, err := config.Parse("t.yaml", []byte("buckets: [1m]\ncloser: "+row.closer+"\n"))
		want := "t.yaml:" + row.want
		expect.That(t, err != nil && err.Error() == want, "%s: got\n%v\nwant\n%s", row.closer, err, want)
	}
}

func TestParse_APaymentProviderNeedsThePaidStatus(t *testing.T) {
	const file = "buckets: [1m]\ncloser: {payment: {url: \"https://a/\"}}\norders:\n  table: t\n  id: {column: id, type: integer}\n" +
		"  status: {column: s, from: 1, to: 9%s}\n  due: {column: d, type: datetime, zone: UTC, precision: s}\n  items: none\n  stock: none\n"
	if _, err := config.Parse("t.yaml", fmt.Appendf(nil, file, "")); err == nil || !strings.Contains(err.Error(),
		"t.yaml:6:11: closer.payment.url: a payment provider is set, but orders.status.paid is empty") {
		t.Errorf("without: %v", err)
	}
	expect.Is(t, expect.Err(config.Parse("t.yaml", fmt.Appendf(nil, file, ", paid: [2]"))), nil, "a file with a list of paid")
}
