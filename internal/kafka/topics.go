package kafka

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/orderclose/orderclose/internal/wire"
)

// TopicSpec is what a topic must look like.
type TopicSpec struct {
	Name        string
	Partitions  int
	Replication int
	// Retention is the shortest time for which records are kept.
	Retention time.Duration
	// FlushMessages is how many records of a partition the broker appends before it writes them to disk; 1: it does before it acknowledges each.
	// 0 is the broker's own setting: Apply removes what it has set.
	FlushMessages int
	// BrokerTime means that the broker stamps records when it appends them (LogAppendTime).
	BrokerTime bool
	// MaxBytes is the size of the largest batch that the topic takes, as its readers unpack it; 0: the topic takes what Kafka does by default.
	MaxBytes int
	// Group is the consumer group whose commits show that the topic is orderclose's; see Foreign. It may be "".
	Group string
	// Adopt means that Apply commits the start of the topic for Group if the group has no commit and the topic is empty: relays serve each
	// topic in which their group has committed.
	Adopt bool
	// Named is set if the operator has named the topic: Apply changes it even if it is foreign.
	Named bool
}

func topicNames(specs []TopicSpec) []string {
	names := make([]string, len(specs))
	for i, s := range specs {
		names[i] = s.Name
	}
	return names
}

// TopicState is what a topic looks like. The zero value is a topic that does not exist.
type TopicState struct {
	Exists      bool
	Partitions  int
	Replication int
	Config      map[string]string
	Own         map[string]bool // the settings that the topic has of its own; the others are those of the broker
}

// flushKey is the setting that makes a broker write records to disk. Kafka's default is never.
const flushKey = "flush.messages"

// Finding is one difference between a spec and a state.
type Finding struct {
	Topic string `json:"topic"`
	What  string `json:"what"` // the actual and the wanted value
	Fix   string `json:"fix"`  // how topics apply fixes it, or how a person must
	// By is the change that fixes it. At most one of Create, Partitions and Key is set, and none if only a person can fix it.
	By Change `json:"-"`
}

// Change is one change that Apply makes to a topic.
type Change struct {
	Create     bool
	Partitions int    // raise the number of partitions to this
	Key, Value string // set this setting; Value "": remove the topic's own value
}

// Drift returns the differences between specs and states, in the order of the specs. states is by topic name. It makes no request.
func Drift(specs []TopicSpec, states map[string]TopicState) []Finding {
	var all []Finding
	for _, spec := range specs {
		all = append(all, drift(spec, states[spec.Name])...)
	}
	return all
}

func drift(spec TopicSpec, state TopicState) []Finding {
	if !state.Exists {
		return []Finding{{spec.Name, "does not exist", "create it", Change{Create: true}}}
	}
	var all []Finding
	switch {
	case state.Partitions < spec.Partitions:
		all = append(all, Finding{spec.Name, fmt.Sprintf("has %d partitions, want %d", state.Partitions, spec.Partitions),
			"add partitions", Change{Partitions: spec.Partitions}})
	case state.Partitions > spec.Partitions:
		all = append(all, Finding{spec.Name, fmt.Sprintf("has %d partitions, want %d", state.Partitions, spec.Partitions),
			"the number of partitions cannot be reduced: set partitions in topics.yaml to " + strconv.Itoa(state.Partitions), Change{}})
	}
	if state.Replication < spec.Replication {
		all = append(all, Finding{spec.Name, fmt.Sprintf("has %d replicas, want %d", state.Replication, spec.Replication),
			"reassign its partitions with your cluster's tools", Change{}})
	}
	for _, c := range spec.config() {
		have := state.Config[c.Key]
		synced := c.Key == flushKey && have == "1" && !state.Own[flushKey] // the brokers sync each record of every topic
		if !synced && !c.ok(have) {
			all = append(all, Finding{spec.Name, fmt.Sprintf("%s is %q, want %s", c.Key, have, c.want()) + c.why,
				"set it", Change{Key: c.Key, Value: c.Value}})
		}
	}
	applied := state.Own[flushKey] && slices.Contains([]string{"1", "1000"}, state.Config[flushKey]) // by an earlier topics.yaml
	if spec.FlushMessages == 0 && applied && state.Replication >= spec.Replication {
		all = append(all, Finding{spec.Name, fmt.Sprintf("%s is %q, want the default of the brokers: see sync in topics.yaml", flushKey,
			state.Config[flushKey]), "remove it", Change{Key: flushKey}})
	}
	const size = "max.message.bytes" // a topic is created with the default of the brokers
	if have, err := strconv.Atoi(state.Config[size]); err == nil && have < wire.MaxDeadLetter && spec.MaxBytes == 0 {
		all = append(all, Finding{spec.Name, fmt.Sprintf("%s is %q, want at least %d: it refuses larger records", size, state.Config[size], wire.MaxDeadLetter),
			"set it to 1048588, the default of Kafka", Change{Key: size, Value: "1048588"}})
	}
	return all
}

// wanted is one required setting of a topic.
type wanted struct {
	Key, Value string
	atLeast    bool // a larger number is accepted, and so is -1, which means unlimited
	why        string
}

// config returns the settings that a topic needs. Compaction or a size limit would delete records that still wait. Retention must outlast the wait
// and a long weekend. A record's release time is computed from its append time, hence LogAppendTime. With three replicas, an acked record survives
// the loss of one of them. With flush.messages=1, it survives that all brokers lose power.
func (s TopicSpec) config() []wanted {
	all := []wanted{
		{Key: "cleanup.policy", Value: "delete"},
		{Key: "retention.bytes", Value: "-1"},
		{Key: "retention.ms", Value: strconv.FormatInt(s.Retention.Milliseconds(), 10), atLeast: true},
	}
	if s.BrokerTime {
		all = append(all, wanted{Key: "message.timestamp.type", Value: "LogAppendTime"})
	}
	if s.FlushMessages > 0 { //mutant:topic-not-synced
		all = append(all, wanted{Key: flushKey, Value: strconv.Itoa(s.FlushMessages), why: ": see sync in topics.yaml"})
	}
	if s.MaxBytes > 0 { // a topic that is stored uncompressed has the size that its readers unpack
		all = append(all, wanted{Key: "compression.type", Value: "uncompressed"}, wanted{Key: "max.message.bytes", Value: strconv.Itoa(s.MaxBytes)})
	}
	if s.Replication >= 3 {
		all = append(all,
			wanted{Key: "min.insync.replicas", Value: "2", atLeast: true},
			wanted{Key: "unclean.leader.election.enable", Value: "false"})
	}
	return all
}

func (w wanted) ok(have string) bool {
	if have == w.Value {
		return true
	}
	if !w.atLeast {
		return false
	}
	h, err := strconv.ParseInt(have, 10, 64)
	want, _ := strconv.ParseInt(w.Value, 10, 64)
	return err == nil && (h == -1 || h >= want)
}

func (w wanted) want() string {
	if w.atLeast {
		return "at least " + w.Value
	}
	return w.Value
}

// namesKept is for how long TopicNames remembers an answer: that about 10,000 topics has a megabyte.
const namesKept = 30 * time.Second

// topicList has the names of all topics.
type topicList struct {
	names []string
	at    time.Time
}

// TopicNames returns, in order, the names of the topics with a prefix that this user may see. The answer may be half a minute old.
func (c *Cluster) TopicNames(ctx context.Context, prefix string) ([]string, error) {
	known := c.topicList.Load()
	if known == nil || time.Since(known.at) >= namesKept {
		known = &topicList{at: time.Now()}
		res, err := c.transport.askTopics(ctx, nil)
		if err != nil {
			return nil, fmt.Errorf("list topics: %w", err)
		}
		for _, t := range res.Topics {
			if t.ErrorCode == 0 && len(t.Partitions) > 0 {
				known.names = append(known.names, *t.Topic)
			}
		}
		slices.Sort(known.names)
		c.topicList.Store(known)
	}
	return slices.DeleteFunc(slices.Clone(known.names), func(name string) bool { return !strings.HasPrefix(name, prefix) }), nil
}
