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
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/testkit/process"
)

// workspace creates topics and groups on a broker, with a prefix that no other program
// uses. clean removes them. Only append may be used by several goroutines.
type workspace struct {
	brokers []string
	prefix  string
	client  *kafka.Client
	admin   *kadm.Client
	topics  map[string]int // partitions, by name
	groups  []string
	count   int
}

func newWorkspace(brokers []string) (*workspace, error) {
	admin, err := kadm.NewOptClient(kgo.SeedBrokers(brokers...), kgo.MetadataMinAge(100*time.Millisecond))
	if err != nil {
		return nil, err
	}
	admin.SetTimeoutMillis(int32(turnLimit.Milliseconds()))
	return &workspace{
		brokers: brokers,
		prefix:  "oc_bench_" + strings.ToLower(rand.Text()[:8]) + "_",
		topics:  map[string]int{},
		admin:   admin,
		client: &kafka.Client{
			Addr: kafka.TCP(brokers...), Timeout: 20 * time.Second,
			Transport: &kafka.Transport{MetadataTTL: time.Second, IdleTimeout: time.Minute},
		},
	}, nil
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
	settings := map[string]*string{}
	for key, value := range map[string]string{
		"message.timestamp.type": "LogAppendTime", "cleanup.policy": "delete", "retention.bytes": "-1",
		"retention.ms": strconv.FormatInt((bucketLength + 8*24*time.Hour).Milliseconds(), 10),
		// Delete the data of earlier turns at once, not during the next turn.
		"file.delete.delay.ms": "100",
	} {
		settings[key] = &value
	}
	each, thousandth := "1", "1000"
	switch sync := os.Getenv("SYNC"); { // as topics apply does with sync: always, and with the default of one broker
	case sync == "default" && what == "close":
		settings["flush.messages"] = &thousandth
	case sync == "default", sync == "always":
		settings["flush.messages"] = &each
	}
	if _, err := p.admin.CreateTopic(context.WithoutCancel(ctx), int32(partitions), 1, settings, name); err != nil {
		return "", fmt.Errorf("create %s: %w", name, err)
	}
	p.topics[name] = partitions
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	return name, process.Await(ctx, func(ctx context.Context) error {
		_, err := p.length(ctx, name)
		return err
	})
}

// drop deletes topics.
func (p *workspace) drop(ctx context.Context, names ...string) error {
	deleted, err := p.admin.DeleteTopics(ctx, names...)
	if err = errors.Join(err, deleted.Error()); err != nil {
		return fmt.Errorf("delete topics: %w", err)
	}
	for _, name := range names {
		delete(p.topics, name)
	}
	return nil
}

// length returns how many records the topic holds. Nothing of it must have been
// deleted.
func (p *workspace) length(ctx context.Context, topic string) (n int, err error) {
	ends, err := p.admin.ListEndOffsets(ctx, topic)
	if err = errors.Join(err, ends.Error()); err == nil && len(ends[topic]) != p.topics[topic] {
		err = fmt.Errorf("%s is not ready", topic)
	}
	ends.Each(func(o kadm.ListedOffset) { n += int(o.Offset) })
	return n, err
}

// await waits until the topic holds that many records, or until one of the given
// processes has ended.
func (p *workspace) await(ctx context.Context, topic string, want int, by ...*process.Process) error {
	ctx, cancel := context.WithTimeout(ctx, turnLimit)
	defer cancel()
	return process.Await(ctx, func(ctx context.Context) error {
		n, err := p.length(ctx, topic)
		if err == nil && n < want {
			err = fmt.Errorf("%d of %d records have arrived", n, want)
		}
		return err
	}, by...)
}

// awaitMembers waits until the group is stable with that many members.
func (p *workspace) awaitMembers(ctx context.Context, group string, want int) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return process.Await(ctx, func(ctx context.Context) error {
		groups, err := p.admin.DescribeGroups(ctx, group)
		if g := groups[group]; err == nil && (g.Err != nil || g.State != "Stable" || len(g.Members) != want) {
			err = errors.Join(g.Err, fmt.Errorf("group %s is %s with %d members, want %d", group, g.State, len(g.Members), want))
		}
		return err
	})
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
	deleted, err := p.admin.DeleteGroups(ctx, p.groups...)
	for _, g := range deleted {
		if !errors.Is(g.Err, kerr.GroupIDNotFound) {
			err = errors.Join(err, g.Err)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench: delete groups:", err)
	}
	p.admin.Close()
}

// sleep waits for d; it returns false as soon as ctx ends.
var sleep = retry.Sleep
