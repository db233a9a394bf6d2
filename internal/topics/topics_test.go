package topics

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	sk "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/kafka/drop"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

// A process whose clock is wrong writes its dead letters, too.
func TestSpecs_BrokersStampTheRecordsOfAllTopics(t *testing.T) {
	for _, s := range Specs(config.Default()) {
		expect.That(t, s.BrokerTime, "%s: the clock of the producer counts", s.Name)
	}
}

// fakeKafka returns a broker in memory, and a client of it.
func fakeKafka(t *testing.T, options ...kfake.Opt) (*kfake.Cluster, *kafka.Cluster) {
	t.Helper()
	broker := must.Get(kfake.NewCluster(options...))(t)
	t.Cleanup(broker.Close)
	k := must.Get(kafka.New(kafka.Options{Brokers: broker.ListenAddrs()}))(t)
	t.Cleanup(k.Close)
	return broker, k
}

// compactedTopic returns a broker with a topic that has three partitions and is compacted.
func compactedTopic(t *testing.T, topic string) *kafka.Cluster {
	t.Helper()
	broker, k := fakeKafka(t, kfake.NumBrokers(1), kfake.SeedTopics(3, topic))
	setTopic(t, broker, topic, "cleanup.policy", "compact")
	return k
}

// setTopic sets a setting of a topic.
func setTopic(t *testing.T, broker *kfake.Cluster, topic, key, value string) {
	t.Helper()
	transport := &sk.Transport{}
	defer transport.CloseIdleConnections()
	client := &sk.Client{Addr: sk.TCP(broker.ListenAddrs()...), Transport: transport}
	res, err := client.IncrementalAlterConfigs(t.Context(), &sk.IncrementalAlterConfigsRequest{Resources: []sk.IncrementalAlterConfigsRequestResource{{
		ResourceType: sk.ResourceTypeTopic, ResourceName: topic,
		Configs: []sk.IncrementalAlterConfigsRequestConfig{{Name: key, Value: value, ConfigOperation: sk.ConfigOperationSet}},
	}}})
	must.That(t, err == nil && res.Resources[0].Error == nil, "%v %v", err, res)
}

// A topic that refuses records keeps its orders from being closed in time.
func TestApply_RaisesALimitThatRefusesRecords(t *testing.T) {
	broker, k := fakeKafka(t)
	c := must.Get(config.Parse("topics.yaml", []byte("buckets: [10s]\npartitions: 1\n")))(t)
	if _, left, err := k.Apply(t.Context(), Specs(c)); err != nil || len(left) > 0 {
		t.Fatal(left, err)
	}
	var large []wire.Header
	for i := range 100 {
		large = append(large, wire.Header{Key: fmt.Sprint(i, strings.Repeat("k", 9000)), Value: make([]byte, 9000)})
	}
	huge := wire.Message{Key: make([]byte, 1<<20), Value: make([]byte, 1<<20), Headers: large, Topic: strings.Repeat("t", 249)}
	dead := wire.DeadLetter(huge, "relay", "refused", strings.Repeat("d", 9000))
	setTopic(t, broker, c.Topics.DeadLetter, "max.message.bytes", fmt.Sprint(wire.MaxDeadLetter))
	must.Get(k.Append(t.Context(), c.Topics.DeadLetter, 0, []wire.Message{dead}))(t)
	for _, topic := range []string{c.Topics.Close, c.Topics.Events, "delay_10s"} {
		setTopic(t, broker, topic, "max.message.bytes", "200")
		got, err := k.Check(t.Context(), Specs(c))
		want := `max.message.bytes is "200", want at least 151552: it refuses larger records`
		expect.That(t, err == nil && len(got) == 1 && got[0].Topic == topic && got[0].What == want && strings.HasPrefix(got[0].Fix, "set it to 1048588"),
			"%s: %+v, %v", topic, got, err)
		if fixed, left, err := k.Apply(t.Context(), Specs(c)); err != nil || len(fixed) != 1 || len(left) > 0 {
			t.Errorf("%s: fixed %v, left %v, %v", topic, fixed, left, err)
		}
		must.Get(k.Append(t.Context(), topic, 0, []wire.Message{{Key: []byte("o"), Value: make([]byte, 300<<10)}}))(t)
	}
	if got, err := k.Check(t.Context(), Specs(c)); err != nil || len(got) > 0 {
		t.Errorf("afterwards: %v, %v", got, err)
	}
}

// A log without a second copy is synced where records wait. topics apply changes and removes what it has set, and nothing else.
func TestApply_SyncsTheOnlyCopy(t *testing.T) {
	broker, k := fakeKafka(t, kfake.NumBrokers(3))
	apply := func(text string) (fixed []kafka.Finding, flush []string) {
		t.Helper()
		specs := Specs(must.Get(config.Parse("topics.yaml", []byte("buckets: [10s]\npartitions: 1\n"+text)))(t))
		fixed, left, err := k.Apply(t.Context(), specs)
		expect.That(t, err == nil && len(left) == 0, "%s: left %v, %v", text, left, err)
		again, err := k.Check(t.Context(), specs)
		expect.That(t, err == nil && len(again) == 0, "%s: afterwards %v, %v", text, again, err)
		for _, s := range specs {
			flush = append(flush, must.Get(k.Topics(t.Context(), s.Name))(t)[s.Name].Config["flush.messages"])
		}
		return fixed, flush
	}
	all := func(value string) []string { return slices.Repeat([]string{value}, 4) }
	waiting := []string{"1", "1000", "1", "1"} // bucket, close topic, dead letters, events
	for _, step := range []struct {
		text  string
		fixed int
		want  []string
	}{
		{"", 4, waiting}, {"sync: always", 1, all("1")}, {"", 1, waiting}, {"sync: never", 4, all("")}, {"", 4, waiting},
		{"closer: {http: {url: 'https://shop.example/close'}}", 1, all("1")},
	} {
		fixed, flush := apply(step.text)
		expect.Same(t, flush, step.want, "of the only copy with %q", step.text)
		expect.Equal(t, len(fixed), step.fixed, "topics fixed with %q", step.text)
	}
	must.Do(t, drop.Topics(t.Context(), k, "delay_10s", "order-close", "order-close-dead-letter", "order-events"))
	_, flush := apply("replication: 3\nsync: always")
	expect.Same(t, flush, all("1"), "with sync: always")
	setTopic(t, broker, "order-close", "flush.messages", "100") // by an operator
	_, flush = apply("replication: 3")
	expect.Same(t, flush, []string{"", "100", "", ""}, "with replicas")
}

// Brokers that sync each record of every topic need no setting of the close topic, which would sync less.
func TestCheck_LeavesBrokersThatSyncEachRecord(t *testing.T) {
	specs := Specs(must.Get(config.Parse("topics.yaml", []byte("buckets: [10s]\n")))(t))
	closes := slices.IndexFunc(specs, func(s kafka.TopicSpec) bool { return s.FlushMessages == 1000 })
	state := kafka.TopicState{Exists: true, Partitions: 12, Replication: 1, Config: map[string]string{
		"cleanup.policy": "delete", "retention.bytes": "-1", "retention.ms": "-1", "message.timestamp.type": "LogAppendTime", "flush.messages": "1",
	}}
	for own, want := range map[bool]int{false: 0, true: 1} {
		state.Own = map[string]bool{"flush.messages": own}
		found := kafka.Drift(specs[closes:closes+1], map[string]kafka.TopicState{specs[closes].Name: state})
		expect.That(t, len(found) == want, "own %v: %v", own, found)
	}
}

// Topics that have one replica yet stay synced, although topics.yaml wants more.
func TestApply_SyncsUntilThereAreReplicas(t *testing.T) {
	_, k := fakeKafka(t, kfake.NumBrokers(3))
	const text = "buckets: [10s]\npartitions: 1\n"
	_, _, err := k.Apply(t.Context(), Specs(must.Get(config.Parse("topics.yaml", []byte(text)))(t)))
	must.Do(t, err)
	fixed, left, err := k.Apply(t.Context(), Specs(must.Get(config.Parse("topics.yaml", []byte(text+"replication: 3")))(t)))
	must.Do(t, err)
	flushes := func(f kafka.Finding) bool { return strings.Contains(f.What, "flush") }
	expect.That(t, len(left) == 4 && !slices.ContainsFunc(fixed, flushes), "fixed %v, left %v", fixed, left)
}

// A managed service accepts some settings only. The others are applied, and the difference is left to a person.
func TestApply_WhereBrokersRefuseToSyncTheRestIsApplied(t *testing.T) {
	broker, k := fakeKafka(t)
	refuses := func(configs int, key func(i int) string) bool {
		for i := range configs {
			if key(i) == "flush.messages" {
				return true
			}
		}
		return false
	}
	broker.ControlKey(int16(kmsg.CreateTopics), func(r kmsg.Request) (kmsg.Response, error, bool) {
		broker.KeepControl()
		asked, res := r.(*kmsg.CreateTopicsRequest).Topics[0], r.ResponseKind().(*kmsg.CreateTopicsResponse)
		topic := kmsg.NewCreateTopicsResponseTopic()
		topic.Topic, topic.ErrorCode = asked.Topic, kerr.InvalidConfig.Code
		res.Topics = append(res.Topics, topic)
		return res, nil, refuses(len(asked.Configs), func(i int) string { return asked.Configs[i].Name })
	})
	broker.ControlKey(int16(kmsg.IncrementalAlterConfigs), func(r kmsg.Request) (kmsg.Response, error, bool) {
		broker.KeepControl()
		asked, res := r.(*kmsg.IncrementalAlterConfigsRequest).Resources[0], r.ResponseKind().(*kmsg.IncrementalAlterConfigsResponse)
		topic := kmsg.NewIncrementalAlterConfigsResponseResource()
		topic.ResourceType, topic.ResourceName, topic.ErrorCode = asked.ResourceType, asked.ResourceName, kerr.PolicyViolation.Code
		res.Resources = append(res.Resources, topic)
		return res, nil, refuses(len(asked.Configs), func(i int) string { return asked.Configs[i].Name })
	})
	specs := Specs(must.Get(config.Parse("topics.yaml", []byte("buckets: [10s]\npartitions: 1\n")))(t))
	for _, round := range []string{"created", "exists"} {
		_, left, err := k.Apply(t.Context(), specs)
		expect.That(t, err == nil && len(left) == 4 && strings.Contains(left[0].What, "refuse flush.messages") && strings.Contains(left[0].Fix, "sync: never"),
			"%s: left %v, %v", round, left, err)
		found, err := k.Check(t.Context(), specs)
		expect.That(t, err == nil && len(found) == 4 && strings.Contains(found[0].What, "see sync in topics.yaml"), "%s: found %v, %v", round, found, err)
	}
}

// appendTo appends a message to each of three partitions.
func appendTo(t *testing.T, k *kafka.Cluster, topic string, m wire.Message) {
	t.Helper()
	for p := range 3 {
		must.Get(k.Append(t.Context(), topic, p, []wire.Message{m}))(t)
	}
}

// foreignRecord is a record of another team.
var foreignRecord = wire.Message{Key: []byte("customer-7"), Value: []byte(`{"name":"Ann"}`)}

// eventsIn returns a configuration whose events are in that topic.
func eventsIn(t *testing.T, topic string) *config.Config {
	t.Helper()
	c := must.Get(config.Parse("topics.yaml", []byte("buckets: [10s]\npartitions: 12\n")))(t)
	c.Topics.Events = topic
	return c
}

func ofTopic(findings []kafka.Finding, topic string) (of []kafka.Finding) {
	for _, f := range findings {
		if f.Topic == topic {
			of = append(of, f)
		}
	}
	return of
}

// A topic of the pipeline may have the name of a compacted topic of another team.
func TestApply_LeavesTheTopicOfAnotherTeamAlone(t *testing.T) {
	k := compactedTopic(t, "customers")
	appendTo(t, k, "customers", foreignRecord)
	c := eventsIn(t, "customers")
	_, left, err := k.Apply(t.Context(), Specs(c))
	must.Do(t, err)
	for _, f := range ofTopic(left, "customers") {
		expect.That(t, strings.Contains(f.Fix, "no commit shows that it is orderclose's") && strings.Contains(f.Fix, "topics apply --change customers"),
			"the finding says %q", f.Fix)
	}
	expect.Equal(t, len(ofTopic(left, "customers")), 4, "differences are left to a person")
	states := must.Get(k.Topics(t.Context(), "customers", "delay_10s"))(t)
	if s := states["customers"]; s.Partitions != 3 || s.Config["cleanup.policy"] != "compact" {
		t.Errorf("customers has %d partitions and cleanup.policy %s: it was changed", s.Partitions, s.Config["cleanup.policy"])
	}
	expect.That(t, states["delay_10s"].Exists, "the other topics were not created")

	specs := Specs(c)
	for i := range specs {
		specs[i].Named = specs[i].Name == "customers"
	}
	if _, left, err := k.Apply(t.Context(), specs); err != nil || len(left) > 0 {
		t.Errorf("named by the operator: left %v, %v", left, err)
	}
}

func TestApply_ChangesTopicsThatAreOurs(t *testing.T) {
	const group = "readers of the events"
	specs := Specs(eventsIn(t, "events"))
	for i := range specs {
		if specs[i].Name == "events" {
			specs[i].Group = group
		}
	}
	for name, prepare := range map[string]func(*kafka.Cluster){
		"empty": func(*kafka.Cluster) {},
		"with our commits": func(k *kafka.Cluster) {
			appendTo(t, k, "events", foreignRecord)
			must.Do(t, k.SetPosition(t.Context(), group, "events", 1, 1))
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := compactedTopic(t, "events")
			prepare(k)
			_, left, err := k.Apply(t.Context(), specs)
			expect.That(t, err == nil && len(left) <= 0, "left %v, %v", left, err)
		})
	}
}
