package scenario

import (
	"time"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/testkit/checker"
)

// ExpectOf returns what the checker expects of a run with a configuration: its topics and groups, and what the shop
// knows of its orders. Without a shop (nil) the caller adds that.
func ExpectOf(cfg *config.Config, shop *Shop) checker.Expect {
	e := checker.Expect{OpenAfter: time.Now().Add(24 * time.Hour), Delays: map[string]string{}, CloseTopic: cfg.Topics.Close,
		DeadLetterTopic: cfg.Topics.DeadLetter, CloserGroup: cfg.CloserGroup(), EventsTopic: cfg.Topics.Events}
	for _, b := range cfg.Buckets {
		e.Delays[b.Topic] = cfg.RelayGroup(b)
	}
	if shop != nil {
		e.Stock, e.Paid, e.Published, e.Added, e.RolledBack = shop.StartStock(), shop.Paid(), shop.Published(), shop.Added(), shop.RolledBack()
	}
	return e
}
