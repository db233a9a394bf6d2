package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/orderclose/orderclose/internal/retry"
)

// topicsTimeout is how long Topics retries while brokers disagree about whether a topic
// exists, as they do right after it was deleted.
const topicsTimeout = 5 * time.Second

// ownConfig is DYNAMIC_TOPIC_CONFIG, the source in Kafka's protocol of a setting that the topic itself has.
const ownConfig = 1

// Topics returns the state of the named topics, by name. A topic that does not exist has
// no entry, and so the zero TopicState.
func (c *Cluster) Topics(ctx context.Context, names ...string) (map[string]TopicState, error) {
	var states map[string]TopicState
	err := repeat(ctx, topicsTimeout, func(err error) bool { return errors.Is(err, kafka.UnknownTopicOrPartition) }, func() (err error) {
		states, err = c.describeTopics(ctx, names)
		return err
	})
	return states, err
}

func (c *Cluster) describeTopics(ctx context.Context, names []string) (map[string]TopicState, error) {
	states, err := c.shapes(ctx, names)
	if err != nil || len(states) == 0 {
		return states, err
	}
	req := &kafka.DescribeConfigsRequest{}
	for _, name := range names {
		if states[name].Exists {
			req.Resources = append(req.Resources, kafka.DescribeConfigRequestResource{ResourceType: kafka.ResourceTypeTopic, ResourceName: name})
		}
	}
	res, err := c.client.DescribeConfigs(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("describe topics: %w", err)
	}
	var hidden []string
	for _, r := range res.Resources {
		if errors.Is(r.Error, kafka.TopicAuthorizationFailed) {
			hidden = append(hidden, r.ResourceName)
		} else if r.Error != nil {
			c.transport.topology.suspect(r.ResourceName)
			return nil, fmt.Errorf("describe topic %s: %w", r.ResourceName, r.Error)
		}
		for _, e := range r.ConfigEntries {
			states[r.ResourceName].Config[e.ConfigName] = e.ConfigValue
			states[r.ResourceName].Own[e.ConfigName] = e.ConfigSource == ownConfig
		}
	}
	if len(hidden) > 0 {
		return nil, fmt.Errorf("describe topics: %w", c.transport.hidden(protocol.DescribeConfigs, hidden))
	}
	return states, nil
}

// shapes returns the states of the topics without their settings.
func (c *Cluster) shapes(ctx context.Context, names []string) (map[string]TopicState, error) {
	found, err := c.transport.describe(ctx, topic.recent, names...)
	if err != nil {
		return nil, fmt.Errorf("list topics: %w", err)
	}
	states := map[string]TopicState{}
	for _, t := range found {
		if t.exists() {
			states[t.name] = TopicState{Exists: true, Partitions: len(t.leaders), Replication: t.replicas, Config: map[string]string{}, Own: map[string]bool{}}
		}
	}
	return states, nil
}

// offsetsTopic is Kafka's own topic of commits.
const offsetsTopic = "__consumer_offsets"

// CheckOffsets returns why a broker that is down may stop groups, although the topics, with this number of replicas, go on. It looks
// at Kafka's own topic of commits, in which the leader of a group's partition is the coordinator. It finds nothing before the first
// group, when there is no such topic, and if this user may not see it.
func (c *Cluster) CheckOffsets(ctx context.Context, replication int) (all []Finding, err error) {
	const key = "min.insync.replicas"
	add := func(what, fix string) { all = append(all, Finding{Topic: offsetsTopic, What: what, Fix: fix}) }
	res, err := c.transport.askTopics(ctx, []string{offsetsTopic}) // not cached: it would be asked for each second
	if err != nil || res.Topics[0].ErrorCode != 0 || len(res.Topics[0].Partitions) == 0 {
		return nil, err
	}
	partitions, replicas := res.Topics[0].Partitions, len(res.Topics[0].Partitions[0].Replicas)
	led := slices.DeleteFunc(slices.Clone(partitions), func(p kmsg.MetadataResponseTopicPartition) bool { return p.Leader < 0 })
	if n := len(partitions); len(led) < n {
		add(fmt.Sprintf("%d of %d partitions have no leader: their groups accept no member and no commit", n-len(led), n), "start the brokers with their replicas")
	}
	if replicas < replication {
		add(fmt.Sprintf("has %d replicas, want %d as the other topics: while a broker is down, groups may stand still", replicas, replication),
			"reassign its partitions with your cluster's tools, and set offsets.topic.replication.factor on every broker")
	}
	// Without an answer, this user may not read settings.
	if n, err := c.setting(ctx, kafka.ResourceTypeTopic, offsetsTopic, key); err == nil && n > 1 && n >= replicas {
		add(fmt.Sprintf("%s is %d of %d replicas: while a broker is down, no commit is accepted", key, n, replicas), "set it to less than the replicas")
	}
	return all, nil
}

// CheckReplicas returns the topics, of these and Kafka's own topic of commits, of which replicas are not in sync. It leaves out topics that
// do not exist or that this user may not see.
func (c *Cluster) CheckReplicas(ctx context.Context, specs []TopicSpec) ([]Finding, error) {
	res, err := c.transport.askTopics(ctx, append(topicNames(specs), offsetsTopic))
	if err != nil {
		return nil, err
	}
	return outOfSync(res.Topics), nil
}

func outOfSync(topics []kmsg.MetadataResponseTopic) (all []Finding) {
	for _, t := range topics {
		n := 0
		for _, p := range t.Partitions {
			if len(p.ISR) < len(p.Replicas) {
				n++
			}
		}
		if n > 0 {
			all = append(all, Finding{Topic: *t.Topic, What: fmt.Sprintf("%d of %d partitions have a replica that is not in sync: if another broker is lost, "+
				"they may stand still, or lose records", n, len(t.Partitions)), Fix: "start the broker that is down; if none is, its log says why it cannot keep up"})
		}
	}
	return all
}

// setting returns one number of the settings of a topic or a broker.
func (c *Cluster) setting(ctx context.Context, kind kafka.ResourceType, name, key string) (int, error) {
	res, err := c.client.DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{Resources: []kafka.DescribeConfigRequestResource{
		{ResourceType: kind, ResourceName: name, ConfigNames: []string{key}},
	}})
	if err != nil {
		return 0, err
	}
	r := res.Resources[0]
	if r.Error != nil || len(r.ConfigEntries) != 1 {
		return 0, cmp.Or(c.transport.judge(about{request: protocol.DescribeConfigs, topic: name}, r.Error), errors.ErrUnsupported)
	}
	return strconv.Atoi(r.ConfigEntries[0].ConfigValue)
}

// MetadataLimit returns the smallest limit of the brokers, in bytes, for the metadata of a commit. Only the broker itself tells its limit.
func (c *Cluster) MetadataLimit(ctx context.Context) (int, error) {
	const key = "offset.metadata.max.bytes"
	cluster, err := c.transport.cluster(ctx)
	if err != nil {
		return 0, err
	}
	least := math.MaxInt
	for id := range cluster.Brokers {
		n, err := c.setting(ctx, kafka.ResourceTypeBroker, strconv.Itoa(int(id)), key)
		if err != nil {
			return 0, fmt.Errorf("broker %d does not tell its %s: %w", id, key, err)
		}
		least = min(least, n)
	}
	return least, nil
}

// Check returns the differences between the topics and their specs. A difference of a foreign topic
// has no change; see Foreign.
func (c *Cluster) Check(ctx context.Context, specs []TopicSpec) ([]Finding, error) {
	states, err := c.Topics(ctx, topicNames(specs)...)
	if err != nil {
		return nil, err
	}
	findings := Drift(specs, states)
	return findings, c.protect(ctx, specs, findings)
}

// Apply creates and changes topics so that they match their specs. It then waits until every
// partition has a leader, or until ctx ends. It returns the findings that it has fixed, and
// those that need a person. With an error both lists may be incomplete. Apply is idempotent. It does
// not change a foreign topic unless its spec is Named. If the brokers refuse to sync a topic, everything else is applied, and that is
// left to a person.
func (c *Cluster) Apply(ctx context.Context, specs []TopicSpec) (fixed, left []Finding, err error) {
	findings, err := c.Check(ctx, specs)
	if err != nil {
		return nil, nil, err
	}
	var refused []Finding
	specs = slices.Clone(specs)
	for _, f := range findings {
		if f.By == (Change{}) {
			left = append(left, f)
			continue
		}
		spec := &specs[slices.IndexFunc(specs, func(s TopicSpec) bool { return s.Name == f.Topic })]
		err := c.change(ctx, *spec, f.By)
		if spec.FlushMessages > 0 && (f.By.Create || f.By.Key == flushKey) && refusesSetting(err) { //mutant:refused-sync-ends-apply
			refused = append(refused, Finding{f.Topic, fmt.Sprintf("the brokers refuse %s=%d: %v", flushKey, spec.FlushMessages, err),
				"set log.flush.interval.messages=1 on the brokers, or accept it by sync: never in topics.yaml", Change{}})
			spec.FlushMessages = 0
			if !f.By.Create {
				continue
			}
			err = c.change(ctx, *spec, f.By)
		}
		if err != nil {
			return fixed, left, fmt.Errorf("topic %s: %s: %w", f.Topic, f.Fix, err)
		}
		fixed = append(fixed, f)
	}
	isLeft := func(s TopicSpec) bool {
		return slices.ContainsFunc(left, func(f Finding) bool { return f.Topic == s.Name })
	}
	specs = slices.DeleteFunc(specs, isLeft) // of a topic that is left, partitions may be missing
	if err = c.awaitTopics(ctx, specs); err == nil {
		err = c.Adopt(ctx, specs)
	}
	return fixed, append(left, refused...), err
}

// Adopt commits the start of the empty topics whose specs want it. A group with members refuses that, and commits by itself.
func (c *Cluster) Adopt(ctx context.Context, specs []TopicSpec) error {
	for _, s := range specs {
		if !s.Adopt {
			continue
		}
		committed, err := c.HasCommitted(ctx, s.Group, s.Name)
		first, end := int64(0), int64(0)
		if err == nil && !committed {
			first, end, err = c.Bounds(ctx, s.Name, 0)
		}
		if err == nil && !committed && first == end { //mutant:bucket-not-adopted
			err = c.SetPosition(ctx, s.Group, s.Name, 0, first)
		}
		if err != nil && !errors.Is(err, kafka.UnknownMemberId) {
			return fmt.Errorf("topic %s exists, but relays serve it only when they have read topics.yaml: %w", s.Name, err)
		}
	}
	return nil
}

// refusesSetting reports whether brokers answered that they do not accept a setting, as those of managed services do.
func refusesSetting(err error) bool {
	return errors.Is(err, kafka.InvalidConfiguration) || errors.Is(err, kafka.PolicyViolation) || errors.Is(err, kafka.InvalidRequest)
}

func (c *Cluster) change(ctx context.Context, spec TopicSpec, by Change) error {
	switch {
	case by.Create:
		return c.createTopic(ctx, spec)
	case by.Partitions > 0:
		res, err := c.client.CreatePartitions(ctx, &kafka.CreatePartitionsRequest{
			Topics: []kafka.TopicPartitionsConfig{{Name: spec.Name, Count: int32(by.Partitions)}},
		})
		if err != nil {
			return err
		}
		c.transport.topology.forget()
		err = res.Errors[spec.Name]
		if errors.Is(err, kafka.InvalidPartitionNumber) { // another apply was faster, or an answer was lost and the request was repeated
			if n, failed := c.Partitions(ctx, spec.Name); failed == nil && n >= by.Partitions {
				return nil
			}
		}
		return c.transport.judge(about{request: protocol.CreatePartitions, topic: spec.Name}, err)
	default:
		operation := kafka.ConfigOperationSet
		if by.Value == "" {
			operation = kafka.ConfigOperationDelete
		}
		res, err := c.client.IncrementalAlterConfigs(ctx, &kafka.IncrementalAlterConfigsRequest{
			Resources: []kafka.IncrementalAlterConfigsRequestResource{{
				ResourceType: kafka.ResourceTypeTopic,
				ResourceName: spec.Name,
				Configs:      []kafka.IncrementalAlterConfigsRequestConfig{{Name: by.Key, Value: by.Value, ConfigOperation: operation}},
			}},
		})
		if err != nil {
			return err
		}
		return c.transport.judge(about{request: protocol.IncrementalAlterConfigs, topic: spec.Name}, res.Resources[0].Error)
	}
}

func (c *Cluster) createTopic(ctx context.Context, spec TopicSpec) error {
	topic := kafka.TopicConfig{Topic: spec.Name, NumPartitions: spec.Partitions, ReplicationFactor: spec.Replication}
	for _, w := range spec.config() {
		topic.ConfigEntries = append(topic.ConfigEntries, kafka.ConfigEntry{ConfigName: w.Key, ConfigValue: w.Value})
	}
	res, err := c.client.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{topic}})
	if err != nil {
		return err
	}
	c.transport.topology.forget()
	c.topicList.Store(nil)
	if err := res.Errors[spec.Name]; !errors.Is(err, kafka.TopicAlreadyExists) {
		return c.transport.judge(about{request: protocol.CreateTopics, topic: spec.Name}, err)
	}
	return nil
}

// awaitTopics waits until every partition of the topics has a leader that answers.
// Brokers answer a request to create a topic earlier. A topic that was still being
// deleted when Check saw it is created once it is gone.
func (c *Cluster) awaitTopics(ctx context.Context, specs []TopicSpec) error {
	for _, spec := range specs {
		for {
			n, err := c.Partitions(ctx, spec.Name)
			if err == nil {
				for _, a := range c.Offsets(ctx, OffsetQueries(spec.Name, max(n, spec.Partitions), LogEnd)) {
					err = cmp.Or(err, a.Err)
				}
			}
			if err == nil {
				break
			}
			if errors.Is(err, kafka.UnknownTopicOrPartition) {
				err = errors.Join(err, c.createTopic(ctx, spec))
			}
			if !retry.Sleep(ctx, 50*time.Millisecond) {
				return fmt.Errorf("topic %s is not ready: %w", spec.Name, errors.Join(err, ctx.Err()))
			}
		}
	}
	return nil
}

// Client returns a client for what the pipeline does not do, such as deleting a topic. Call Forget afterwards.
func (c *Cluster) Client() *kafka.Client { return c.client }

// Forget makes the Cluster ask again for topics and coordinators, after this process has changed them.
func (c *Cluster) Forget() { c.transport.topology.forget() }
