package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"
)

// workspace creates topics and groups on a broker, with a prefix that no other program
// uses. clean removes them. Only append may be used by several goroutines.
type workspace struct {
	brokers []string
	prefix  string
	client  *kafka.Client
	topics  map[string]int // partitions, by name
	groups  []string
	count   int
}

func newWorkspace(brokers []string) *workspace {
	return &workspace{
		brokers: brokers,
		prefix:  "oc_bench_" + strings.ToLower(rand.Text()[:8]) + "_",
		topics:  map[string]int{},
		client: &kafka.Client{
			Addr: kafka.TCP(brokers...), Timeout: 20 * time.Second,
			Transport: &kafka.Transport{MetadataTTL: time.Second, IdleTimeout: time.Minute},
		},
	}
}

// name returns a new, unused name.
func (p *workspace) name(what string) string {
	p.count++
	return p.prefix + what + "_" + strconv.Itoa(p.count)
}

// group returns the name of a new consumer group.
func (p *workspace) group() string {
	g := p.name("group")
	p.groups = append(p.groups, g)
	return g
}

// topic creates a topic with the settings of delay and close topics, and waits until
// each of its partitions answers. An interrupt does not stop the creation, because
// clean would not know whether to remove the topic.
func (p *workspace) topic(ctx context.Context, what string, partitions int) (string, error) {
	name := p.name(what)
	retention := bucketLength + 8*24*time.Hour
	res, err := p.client.CreateTopics(context.WithoutCancel(ctx), &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{{
		Topic: name, NumPartitions: partitions, ReplicationFactor: 1,
		ConfigEntries: []kafka.ConfigEntry{
			{ConfigName: "message.timestamp.type", ConfigValue: "LogAppendTime"},
			{ConfigName: "cleanup.policy", ConfigValue: "delete"},
			{ConfigName: "retention.bytes", ConfigValue: "-1"},
			{ConfigName: "retention.ms", ConfigValue: strconv.FormatInt(retention.Milliseconds(), 10)},
			// Delete the data of earlier turns at once, not during the next turn.
			{ConfigName: "file.delete.delay.ms", ConfigValue: "100"},
		},
	}}})
	if err == nil {
		err = res.Errors[name]
	}
	if err != nil {
		return "", fmt.Errorf("create %s: %w", name, err)
	}
	p.topics[name] = partitions
	for ctx, cancel := context.WithTimeout(ctx, 20*time.Second); ; {
		if _, err = p.length(ctx, name); err == nil || !sleep(ctx, 20*time.Millisecond) {
			cancel()
			return name, err
		}
	}
}

// drop deletes topics.
func (p *workspace) drop(ctx context.Context, names ...string) error {
	res, err := p.client.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: names})
	if err != nil {
		return fmt.Errorf("delete topics: %w", err)
	}
	for _, name := range names {
		if err := res.Errors[name]; err != nil {
			return fmt.Errorf("delete %s: %w", name, err)
		}
		delete(p.topics, name)
	}
	return nil
}

// length returns how many records the topic holds. Nothing of it must have been
// deleted.
func (p *workspace) length(ctx context.Context, topic string) (int, error) {
	var ask []kafka.OffsetRequest
	for i := range p.topics[topic] {
		ask = append(ask, kafka.LastOffsetOf(i))
	}
	res, err := p.client.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{topic: ask}})
	if err != nil {
		return 0, err
	}
	var all int64
	for _, o := range res.Topics[topic] {
		if o.Error != nil || o.LastOffset < 0 {
			return 0, errors.Join(o.Error, fmt.Errorf("%s/%d is not ready", topic, o.Partition))
		}
		all += o.LastOffset
	}
	return int(all), nil
}

// await waits until the topic holds that many records, or until one of the given
// processes has ended.
func (p *workspace) await(ctx context.Context, topic string, want int, by ...*side) error {
	ctx, cancel := context.WithTimeout(ctx, turnLimit)
	defer cancel()
	for {
		n, err := p.length(ctx, topic)
		if n >= want {
			return nil
		}
		for _, b := range by {
			if err := b.Ended(); err != nil {
				return err
			}
		}
		if !sleep(ctx, 20*time.Millisecond) {
			return fmt.Errorf("%d of %d records have arrived after %v: %w", n, want, turnLimit, errors.Join(err, ctx.Err()))
		}
	}
}

// awaitMembers waits until the group is stable with that many members.
func (p *workspace) awaitMembers(ctx context.Context, group string, want int) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		res, err := p.client.DescribeGroups(ctx, &kafka.DescribeGroupsRequest{GroupIDs: []string{group}})
		if err == nil && len(res.Groups) == 1 && res.Groups[0].GroupState == "Stable" && len(res.Groups[0].Members) == want {
			return nil
		}
		if !sleep(ctx, 100*time.Millisecond) {
			return fmt.Errorf("group %s has not come to rest with %d members: %w", group, want, errors.Join(err, ctx.Err()))
		}
	}
}

// clean removes all topics and groups, and reports those that it could not remove.
func (p *workspace) clean() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for names := range slices.Chunk(slices.Collect(maps.Keys(p.topics)), 100) {
		if err := p.drop(ctx, names...); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
		}
	}
	for _, g := range p.groups {
		res, err := p.client.DeleteGroups(ctx, &kafka.DeleteGroupsRequest{GroupIDs: []string{g}})
		if err == nil {
			err = res.Errors[g]
		}
		if err != nil && !errors.Is(err, kafka.GroupIdNotFound) {
			fmt.Fprintf(os.Stderr, "bench: delete group %s: %v\n", g, err)
		}
	}
}

// sleep waits for d; it returns false as soon as ctx ends.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
