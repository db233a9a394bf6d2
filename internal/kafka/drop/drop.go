// Package drop deletes topics and consumer groups, which no part of the pipeline does: it is for tests and the demo.
package drop

import (
	"context"
	"errors"
	"fmt"
	"time"

	client "github.com/segmentio/kafka-go"

	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/retry"
)

// Topics deletes the named topics. A topic that does not exist is no error.
func Topics(ctx context.Context, c *kafka.Cluster, names ...string) error {
	res, err := c.Client().DeleteTopics(ctx, &client.DeleteTopicsRequest{Topics: names})
	if err != nil {
		return fmt.Errorf("delete topics: %w", err)
	}
	c.Forget()
	for name, err := range res.Errors {
		if err != nil && !errors.Is(err, client.UnknownTopicOrPartition) {
			return fmt.Errorf("delete topic %s: %w", name, err)
		}
	}
	return nil
}

// Groups deletes the named consumer groups with their commits. A group that does not exist is no error. While a group has no coordinator, Groups
// tries again for 10 s.
func Groups(ctx context.Context, c *kafka.Cluster, groups ...string) error {
	for _, group := range groups {
		for began := time.Now(); ; {
			res, err := c.Client().DeleteGroups(ctx, &client.DeleteGroupsRequest{GroupIDs: []string{group}})
			if err == nil {
				err = res.Errors[group]
			}
			if err == nil || errors.Is(err, client.GroupIdNotFound) {
				break
			}
			c.Forget() // the group may have another coordinator
			if !kafka.Passes(err) || time.Since(began) > 10*time.Second || !retry.Sleep(ctx, 100*time.Millisecond) {
				return fmt.Errorf("delete group %s: %w", group, err)
			}
		}
	}
	return nil
}
