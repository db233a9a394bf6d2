package closer

import (
	"log/slog"
	"sync"
	"time"
)

// pauseLog logs once for the process when a pause of all orders begins and when it ends. It is safe for concurrent use.
type pauseLog struct {
	logger *slog.Logger
	mu     sync.Mutex
	at     time.Time // when a close last met the pause; zero: there is none
}

// noted notes that a close met a pause. pause says how long it lasts and why, if that is known.
func (p *pauseLog) noted(pause string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.at.IsZero() {
		p.logger.Info("closing is paused", "pause", pause)
	}
	p.at = time.Now()
}

// ended notes that a close that began at the given time met no pause.
func (p *pauseLog) ended(began time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.at.IsZero() && !began.Before(p.at) {
		p.logger.Info("closing is no longer paused")
		p.at = time.Time{}
	}
}
