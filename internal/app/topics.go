package app

import (
	"time"

	"orderclose/internal/config"
	"orderclose/internal/kafka"
)

// How long records are kept: a delay topic for its bucket and a week, so that
// even a relay that was down over a long weekend finds everything; the close
// topic for a week, which is how far back a replay can reach; events for a week,
// in which their readers catch up after a stop; dead letters for as long as
// somebody may take to look at them.
const (
	week                = 7 * 24 * time.Hour
	deadLetterRetention = 90 * 24 * time.Hour
)

// TopicSpecs says what the topics of a configuration must look like. What is entered by
// time is stamped by the brokers, events too: an audit finds the window's among them,
// whatever a dispatcher's clock says.
func TopicSpecs(c *config.Config) []kafka.TopicSpec {
	spec := func(name string, retention time.Duration, brokerTime bool) kafka.TopicSpec {
		return kafka.TopicSpec{Name: name, Partitions: c.Partitions, Replication: c.Replication, Retention: retention, BrokerTime: brokerTime}
	}
	var specs []kafka.TopicSpec
	for _, b := range c.Buckets {
		specs = append(specs, spec(b.Topic, b.Length+week, true))
	}
	dead := spec(c.Topics.DeadLetter, deadLetterRetention, false)
	dead.Partitions = 1 // few, and read by people
	control := spec(c.Topics.Control, week, true)
	control.Partitions = 1 // a few records a minute
	return append(specs, spec(c.Topics.Close, week, true), spec(c.Topics.Replay, week, true),
		dead, spec(c.Topics.Events, week, true), control)
}

// Groups names the consumer groups of a configuration.
func Groups(c *config.Config) []string {
	var groups []string
	for _, b := range c.Buckets {
		groups = append(groups, c.RelayGroup(b))
	}
	return append(groups, c.CloserGroup(), c.ReplayGroup(), c.ReleaseGroup(), c.CompensatorGroup())
}
