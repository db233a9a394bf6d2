package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"

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
	if have, err := strconv.Atoi(state.Config[size]); err == nil && have < wire.MaxDeadLetter {
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

// Foreign reports whether a topic may belong to somebody else: it holds records, and the group has
// committed nothing there. The group may be "".
func (c *Cluster) Foreign(ctx context.Context, topic, group string) (bool, error) {
	n, err := c.Partitions(ctx, topic)
	if err != nil {
		return false, err
	}
	holds := false
	for _, bounds := range c.Offsets(ctx, OffsetQueries(topic, n, LogStart, LogEnd)) {
		err = cmp.Or(err, bounds.Err)
		holds = holds || bounds.Err == nil && bounds.Offsets[0] < bounds.Offsets[1]
	}
	if err != nil || !holds || group == "" {
		return holds, err
	}
	committed, err := c.HasCommitted(ctx, group, topic)
	return !committed, err
}

// protect takes the changes out of the findings about foreign topics, except those that the
// operator has named. A topic is also left alone if this user may not see whose it is.
func (c *Cluster) protect(ctx context.Context, specs []TopicSpec, findings []Finding) error {
	for _, spec := range specs {
		changes := func(f Finding) bool { return f.Topic == spec.Name && f.By != (Change{}) && !f.By.Create }
		if spec.Named || !slices.ContainsFunc(findings, changes) {
			continue
		}
		foreign, err := c.Foreign(ctx, spec.Name, spec.Group)
		why := "it holds records, and no commit shows that it is orderclose's"
		if access := (*AccessError)(nil); errors.As(err, &access) {
			foreign, err, why = true, nil, fmt.Sprintf("it is not known whether it is orderclose's (%v)", access)
		}
		if err != nil {
			return fmt.Errorf("find out whose topic %s is: %w", spec.Name, err)
		}
		for i := range findings {
			if foreign && changes(findings[i]) { //mutant:foreign-topic-changed
				findings[i].By = Change{}
				findings[i].Fix = fmt.Sprintf("the topic is left alone, because %s: correct the name in topics.yaml, "+
					"or change the topic with orderclose topics apply --change %s", why, spec.Name)
			}
		}
	}
	return nil
}

// CheckVisible is Check for a user who may not see everything. It compares what the user may
// see. It returns an AccessError in unseen for each topic or setting that is hidden, instead
// of failing. A hidden topic counts as existing. If the settings are hidden, only partitions
// and replication are compared.
func (c *Cluster) CheckVisible(ctx context.Context, specs []TopicSpec) (findings []Finding, unseen []error, err error) {
	seen := slices.DeleteFunc(slices.Clone(specs), func(spec TopicSpec) bool {
		_, err := c.transport.describe(ctx, topic.recent, spec.Name)
		if hiddenTopic(err) {
			unseen = append(unseen, fmt.Errorf("topic %s: %w", spec.Name, err))
		}
		return hiddenTopic(err)
	})
	findings, err = c.Check(ctx, seen)
	if !hiddenTopic(err) {
		return findings, unseen, err
	}
	states, failed := c.shapes(ctx, topicNames(seen)) // without settings
	drift := slices.DeleteFunc(Drift(seen, states), func(f Finding) bool { return f.By.Key != "" })
	return drift, append(unseen, err), failed
}

// hiddenTopic reports whether err means that this user may not see a topic or its settings.
func hiddenTopic(err error) bool {
	var access *AccessError
	return errors.As(err, &access) && errors.Is(err, kafka.TopicAuthorizationFailed)
}
