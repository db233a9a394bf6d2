// Package topics says which topics a pipeline has: what each must look like, and which buckets relays serve.
package topics

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/kafka"
)

// How long records are kept. A delay topic keeps them for its bucket and a week, so that a relay that was down over a long weekend finds everything. The
// close topic keeps them for a week, which is how far back a replay can reach. Events are kept for a week, in which their readers can catch up. Dead
// letters are kept longer, until a person has looked at them.
const (
	week                = 7 * 24 * time.Hour
	deadLetterRetention = 90 * 24 * time.Hour
)

// Specs returns the required properties of the topics. Brokers stamp their records: commands search them by time, and a broker refuses records
// whose own time is an hour ahead.
func Specs(c *config.Config) []kafka.TopicSpec {
	spec := func(name, group string, retention time.Duration) kafka.TopicSpec {
		return kafka.TopicSpec{
			Name: name, Group: group, Partitions: c.Partitions, Replication: c.Replication, FlushMessages: c.FlushMessages(name),
			Retention: retention, BrokerTime: true,
		}
	}
	var specs []kafka.TopicSpec
	for _, b := range c.Buckets {
		bucket := spec(b.Topic, c.RelayGroup(b), b.Length+week)
		bucket.Adopt = true
		specs = append(specs, bucket)
	}
	dead := spec(c.Topics.DeadLetter, "", deadLetterRetention)
	dead.Partitions = 1 // few records, read by people
	return append(specs, spec(c.Topics.Close, c.CloserGroup(), week), dead, spec(c.Topics.Events, "", week))
}

// Durability says what topics that match the configuration lose if brokers lose power.
func Durability(cfg *config.Config) string {
	switch n, flush := cfg.Replication, cfg.FlushMessages(cfg.Topics.Close); {
	case flush > 1:
		return fmt.Sprintf("a record is on disk before it is acknowledged; of each partition of %s a loss of power takes up to %d records, "+
			"whose orders a compensator closes", cfg.Topics.Close, flush)
	case flush == 1:
		return "a record is on disk before it is acknowledged"
	case n == 1:
		return "a record is acknowledged before it is on disk: a loss of power loses the last ones"
	default:
		return fmt.Sprintf("a record is acknowledged before it is on disk: it is lost if all %d brokers that have it lose power at once", n)
	}
}

// AccessDenied reports whether err says that access is denied.
func AccessDenied(err error) bool {
	var access *kafka.AccessError
	return errors.As(err, &access)
}

// Served returns the buckets that relays serve, shortest first: those of the configuration, and each other topic that is named like a
// delay topic and in which the relays' group has committed. So a bucket may leave topics.yaml at any time: what waits in its topic leaves
// on time. A topic of another team, with such a name by chance, is not served. With an error Served returns those that it knows.
func Served(ctx context.Context, k *kafka.Cluster, c *config.Config) (orderclose.Buckets, error) {
	names, err := k.TopicNames(ctx, c.Topics.DelayPrefix())
	var others orderclose.Buckets
	for _, name := range names {
		b, ok := c.Topics.BucketOf(name)
		if !ok || slices.ContainsFunc(c.Buckets, func(o orderclose.Bucket) bool { return o.Topic == name }) {
			continue
		}
		committed, failed := k.HasCommitted(ctx, c.RelayGroup(b), name)
		if failed != nil && !AccessDenied(failed) {
			err = errors.Join(err, failed)
		}
		if committed { //mutant:foreign-delay-served
			others = append(others, b)
		}
	}
	return Union(c.Buckets, others), err
}

// Union returns the buckets that are in a or b, shortest first. It is a pure function.
func Union(a, b orderclose.Buckets) orderclose.Buckets {
	all := slices.Concat(a, b)
	slices.SortStableFunc(all, func(x, y orderclose.Bucket) int { return cmp.Compare(x.Length, y.Length) })
	return slices.CompactFunc(all, func(x, y orderclose.Bucket) bool { return x.Topic == y.Topic })
}
