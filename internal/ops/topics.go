package ops

import (
	"time"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/kafka"
)

// How long records are kept. A delay topic keeps them for its bucket and a week, so that a
// relay that was down over a long weekend finds everything. The close topic keeps them for
// a week, which is how far back a replay can reach. Events are kept for a week, in which
// their readers can catch up. Dead letters are kept longer, until a person has looked at
// them. Verdicts of a shadow run are kept for its week and another one.
const (
	week                = 7 * 24 * time.Hour
	deadLetterRetention = 90 * 24 * time.Hour
	shadowRetention     = 14 * 24 * time.Hour
)

// TopicSpecs returns the required properties of the topics. Topics that are searched by
// time are stamped by the brokers. Events are too: an audit searches them by time and must
// not depend on a dispatcher's clock.
func TopicSpecs(c *config.Config) []kafka.TopicSpec {
	spec := func(name, group string, retention time.Duration, brokerTime bool) kafka.TopicSpec {
		return kafka.TopicSpec{Name: name, Group: group, Partitions: c.Partitions, Replication: c.Replication, Retention: retention, BrokerTime: brokerTime}
	}
	var specs []kafka.TopicSpec
	for _, b := range c.Buckets {
		specs = append(specs, spec(b.Topic, c.RelayGroup(b), b.Length+week, true))
	}
	dead := spec(c.Topics.DeadLetter, "", deadLetterRetention, false)
	dead.Partitions = 1 // few records, read by people
	control := spec(c.Topics.Control, c.CompensatorGroup(), week, true)
	control.Partitions = 1 // a few records a minute
	return append(specs, spec(c.Topics.Close, c.CloserGroup(), week, true), spec(c.Topics.Replay, c.ReplayGroup(), week, true),
		dead, spec(c.Topics.Events, c.ReleaseGroup(), week, true), control)
}

// ShadowSpec returns the required properties of the topic of a shadow run. It is not among
// TopicSpecs: only the role shadow creates it, and nothing checks it.
func ShadowSpec(c *config.Config) kafka.TopicSpec {
	return kafka.TopicSpec{Name: c.Topics.Shadow, Group: c.ShadowGroup(), Partitions: c.Partitions, Replication: c.Replication, Retention: shadowRetention, BrokerTime: true}
}
