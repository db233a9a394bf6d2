package scenario

import (
	"time"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/testkit/checker"
	"github.com/orderclose/orderclose/internal/topics"
)

// ExpectOf returns what the checker expects of a run with a configuration: its topics and groups, and what the shop
// knows of its orders. Without a shop (nil) the caller adds that.
func ExpectOf(cfg *config.Config, shop *Shop) checker.Expect {
	e := checker.Expect{OpenAfter: time.Now().Add(24 * time.Hour), Delays: Groups(cfg), CloseTopic: cfg.Topics.Close,
		DeadLetterTopic: cfg.Topics.DeadLetter, CloserGroup: cfg.CloserGroup(), EventsTopic: cfg.Topics.Events}
	delete(e.Delays, cfg.Topics.Close)
	if shop != nil {
		e.Stock, e.Paid, e.Published, e.Added, e.RolledBack = shop.StartStock(), shop.Paid(), shop.Published(), shop.Added(), shop.RolledBack()
	}
	return e
}

// Groups returns the group of each topic that stages read.
func Groups(cfg *config.Config) map[string]string {
	all := map[string]string{cfg.Topics.Close: cfg.CloserGroup()}
	for _, b := range cfg.Buckets {
		all[b.Topic] = cfg.RelayGroup(b)
	}
	return all
}

// TopicNames returns the names of all topics.
func TopicNames(cfg *config.Config) (names []string) {
	for _, spec := range topics.Specs(cfg) {
		names = append(names, spec.Name)
	}
	return names
}
