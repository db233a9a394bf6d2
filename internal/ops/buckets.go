package ops

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/kafka"
)

// minIdle plus a bucket's length is how long the bucket's topic must have been unused before the
// bucket may be removed. minIdle is the time in which every producer has read the new file: an
// older producer would still append to the topic.
const minIdle = 24 * time.Hour

// CheckRemovals refuses a configuration in which a bucket is missing whose topic is in use.
func CheckRemovals(ctx context.Context, k *kafka.Cluster, running, next *config.Config, now time.Time) error {
	for _, b := range config.Removed(running.Buckets, next.Buckets) {
		var use string
		there, err := k.Exists(ctx, b.Topic)
		if there && err == nil {
			if use, err = inUse(ctx, k, running.RelayGroup(b), b, now); AccessDenied(err) {
				continue
			}
		}
		if err != nil {
			return fmt.Errorf("bucket %s: check whether it may be removed: %w", config.FormatDuration(b.Length), err)
		}
		if use != "" {
			return fmt.Errorf("bucket %s is missing, and its topic %s %s; keep it as {length: %[1]s, draining: true} until it has been empty for its length and a day",
				config.FormatDuration(b.Length), b.Topic, use)
		}
	}
	return nil
}

// AccessDenied reports whether err says that access is denied. A process with a user of its own,
// such as a closer, may have no access to the relays' commits and so cannot check a bucket. It
// then leaves the check to the relays, which refuse the configuration.
func AccessDenied(err error) bool {
	var access *kafka.AccessError
	return errors.As(err, &access)
}

// inUse returns why a bucket may not be removed yet, or "" if it may. Kafka has all the
// facts, so no state is kept.
func inUse(ctx context.Context, k *kafka.Cluster, group string, b orderclose.Bucket, now time.Time) (string, error) {
	holds, err := k.WaitingIn(ctx, group, b.Topic)
	if err != nil {
		return "", err
	}
	if holds > 0 {
		return fmt.Sprintf("still holds %d records", holds), nil
	}
	recent, err := k.Window(ctx, b.Topic, kafka.MomentOf(now.Add(-b.Length-minIdle)), kafka.LogEnd)
	if len(recent) > 0 {
		return "was used within the last " + orderclose.ShortDuration(b.Length+minIdle), err
	}
	return "", err
}

// Unlisted returns findings for the delay topics that are in use and have no bucket in the
// configuration.
func Unlisted(ctx context.Context, k *kafka.Cluster, c *config.Config, now time.Time) ([]kafka.Finding, error) {
	names, err := k.TopicNames(ctx, c.Topics.DelayPrefix())
	if err != nil {
		return nil, err
	}
	var findings []kafka.Finding
	for _, b := range UnlistedBuckets(c, names) {
		use, err := inUse(ctx, k, c.RelayGroup(b), b, now)
		foreign := false
		if err == nil && use != "" {
			foreign, err = k.Foreign(ctx, b.Topic, c.RelayGroup(b))
		}
		if AccessDenied(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if use != "" && !foreign {
			findings = append(findings, kafka.Finding{
				Topic: b.Topic, What: "has no bucket in topics.yaml and " + use,
				Fix: fmt.Sprintf("list it as {length: %s, draining: true} until it has been empty for its length and a day", config.FormatDuration(b.Length)),
			})
		}
	}
	return findings, nil
}

// WaitingUnlisted returns how many records wait in a delay topic that has no bucket in the
// configuration. It returns 0 if the topic is foreign: another team may have a topic with such a name.
func WaitingUnlisted(ctx context.Context, k *kafka.Cluster, c *config.Config, b orderclose.Bucket) (int64, error) {
	holds, err := k.WaitingIn(ctx, c.RelayGroup(b), b.Topic)
	if err != nil || holds == 0 {
		return 0, err
	}
	if foreign, err := k.Foreign(ctx, b.Topic, c.RelayGroup(b)); err != nil || foreign { //mutant:foreign-delay-served
		return 0, err
	}
	return holds, nil
}

// UnlistedBuckets returns the buckets of those topics that are named like delay topics and have
// no bucket in the configuration. It is a pure function.
func UnlistedBuckets(c *config.Config, names []string) orderclose.Buckets {
	var others orderclose.Buckets
	for _, name := range names {
		b, ok := c.Topics.BucketOf(name)
		if ok && !slices.ContainsFunc(c.Buckets, func(o orderclose.Bucket) bool { return o.Topic == name }) {
			b.Draining = true
			others = append(others, b)
		}
	}
	return others
}
