package app

import (
	"testing"

	"orderclose/internal/config"
)

// TestTopicSpecs_WhatIsEnteredByTimeIsStampedByTheBrokers: dead letters are read whole.
func TestTopicSpecs_WhatIsEnteredByTimeIsStampedByTheBrokers(t *testing.T) {
	c := config.Default()
	for _, s := range TopicSpecs(c) {
		if s.BrokerTime != (s.Name != c.Topics.DeadLetter) {
			t.Errorf("%s: stamped by the brokers: %v", s.Name, s.BrokerTime)
		}
	}
}
