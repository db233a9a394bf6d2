package ops

import (
	"testing"

	"github.com/orderclose/orderclose/internal/config"
)

// TestTopicSpecs_TopicsSearchedByTimeAreStampedByTheBrokers: all topics but the dead letters,
// which are always read from the start.
func TestTopicSpecs_TopicsSearchedByTimeAreStampedByTheBrokers(t *testing.T) {
	c := config.Default()
	for _, s := range TopicSpecs(c) {
		if s.BrokerTime != (s.Name != c.Topics.DeadLetter) {
			t.Errorf("%s: stamped by the brokers: %v", s.Name, s.BrokerTime)
		}
	}
}
