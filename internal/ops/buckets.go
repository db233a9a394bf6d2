package ops

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/kafka"
)

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
