package notices

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// StandIn stands in for a provider of SMS or logistics: it logs each notice. Like a provider, it
// treats a key that it has seen as done. It remembers all keys, so it is for tests and development.
type StandIn struct {
	Latency time.Duration // of an answer
	Logger  *slog.Logger  // default: discard

	mu   sync.Mutex
	seen map[string]string // texts by key
}

// Send accepts a notice.
func (s *StandIn) Send(ctx context.Context, key, text string) error {
	if s.Latency > 0 {
		select {
		case <-time.After(s.Latency):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.seen[key]; known {
		return nil
	}
	if s.seen == nil {
		s.seen = map[string]string{}
	}
	s.seen[key] = text
	if s.Logger != nil {
		s.Logger.Info("stand-in for a provider got a notice", "key", key, "text", text)
	}
	return nil
}

// Sent returns the texts of all notices, by their keys.
func (s *StandIn) Sent() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	sent := make(map[string]string, len(s.seen))
	for key, text := range s.seen {
		sent[key] = text
	}
	return sent
}
