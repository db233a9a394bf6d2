package ops

import (
	"fmt"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/kafka"
)

// TopicsPlan is how the topics differ from topics.yaml, and what would be done about it.
type TopicsPlan struct {
	Topics   int             `json:"topics"`    // that were compared
	Would    []kafka.Finding `json:"would_fix"` // that orderclose topics apply fixes
	Left     []kafka.Finding `json:"left"`      // that a person must fix
	MaxDelay string          `json:"max_delay"`
	// AppendsAtMost is the largest number of appends of a record with a delay up to MaxDelay, including the append to the close topic.
	AppendsAtMost int `json:"appends_at_most"`
	// Durability says in words whether a loss of power loses acknowledged records.
	Durability string `json:"durability"`
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

// NewTopicsPlan divides the findings into those that topics apply would fix and those for a person. topics is the number of topics that were compared.
func NewTopicsPlan(cfg *config.Config, topics int, findings []kafka.Finding) TopicsPlan {
	p := TopicsPlan{
		Topics: topics, Would: []kafka.Finding{}, Left: []kafka.Finding{},
		MaxDelay: config.FormatDuration(cfg.MaxDelay), AppendsAtMost: cfg.Buckets.MostHops(cfg.MaxDelay) + 1,
		Durability: Durability(cfg),
	}
	for _, f := range findings {
		if f.By == (kafka.Change{}) {
			p.Left = append(p.Left, f)
		} else {
			p.Would = append(p.Would, f)
		}
	}
	return p
}

// DelayPlan is the path of a record with a given delay, if nothing is late.
type DelayPlan struct {
	Delay   string `json:"delay"`
	Hops    []Hop  `json:"hops"` // in order
	Close   string `json:"close_topic"`
	Buckets int    `json:"bucket_appends"` // to delay topics
	// Appends includes the append to the close topic.
	Appends int `json:"appends"`
}

// Hop is a number of consecutive appends to the same bucket.
type Hop struct {
	Bucket string `json:"bucket"`
	Topic  string `json:"topic"`
	Times  int    `json:"times"`
}

// NewDelayPlan returns the path through the buckets, with consecutive equal buckets merged.
func NewDelayPlan(buckets orderclose.Buckets, closeTopic string, delay time.Duration) DelayPlan {
	walk := buckets.Walk(delay)
	p := DelayPlan{Delay: config.FormatDuration(delay), Hops: []Hop{}, Close: closeTopic, Buckets: len(walk), Appends: len(walk) + 1}
	for _, b := range walk {
		if n := len(p.Hops); n > 0 && p.Hops[n-1].Topic == b.Topic {
			p.Hops[n-1].Times++
			continue
		}
		p.Hops = append(p.Hops, Hop{orderclose.ShortDuration(b.Length), b.Topic, 1})
	}
	return p
}
