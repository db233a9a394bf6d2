package deadletters

import (
	"context"
	"log/slog"
	"maps"
	"time"
)

const (
	// watchInterval is the interval between reads of the topic, about the interval at which
	// metrics are collected.
	watchInterval = 15 * time.Second
	// maxWatched bounds the dead letters in memory, some 50 MB: a closer has other uses for its memory.
	maxWatched = 1_000_000
)

// State is the state of the topic as its follower knows it.
type State struct {
	At time.Time `json:"at,omitzero"` // when the topic was read to its end
	// Pending is the number of pending dead letters by cause, as Index.Pending returns it. All causes
	// beyond 64 count as Other, and those that are longer than 249 bytes or not valid UTF-8.
	Pending Counts    `json:"pending"`
	Oldest  time.Time `json:"oldest,omitzero"` // when the oldest pending dead letter was appended; zero if there is none
}

// Watch follows the topic from its beginning, without a group, until ctx ends. Each time it
// has read to the end, it calls report. If the topic is missing or may not be read, Watch logs
// that once, keeps trying, and does not call report meanwhile. Of more than a million dead letters it
// counts the older ones as pending under Other, until retention deletes them.
func Watch(ctx context.Context, log Log, topic string, logger *slog.Logger, report func(State)) {
	c := NewCatalog(log, topic, logger)
	c.maxLetters = maxWatched
	c.deleted = func(partition, pending int) {
		logger.Error("retention deleted pending dead letters", "topic", topic, "partition", partition, "letters", pending)
	}
	c.follow(ctx, watchInterval, "counting dead letters failed, orderclose_dead_letters_pending is out of date", func() { report(watched(c.State())) })
}

// watched returns a state that counts the dead letters that left the catalog as pending: nobody knows
// what became of them.
func watched(s CatalogState) State {
	if s.Left > 0 {
		s.Pending = maps.Clone(s.Pending)
		s.Pending[Other] += s.Left
	}
	return s.State
}
