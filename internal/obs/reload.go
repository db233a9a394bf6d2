package obs

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// reloadMetrics are the metrics of the configuration.
type reloadMetrics struct{ reloaded, reloadedAt prometheus.Gauge }

func newReloadMetrics(f factory) reloadMetrics {
	m := reloadMetrics{
		reloaded:   f.gauge("config_last_reload_successful", "1 if the last read topics.yaml was accepted; 0 if it was refused and the previous one is in effect."),
		reloadedAt: f.gauge("config_last_reload_success_timestamp_seconds", "When topics.yaml was last read and accepted."),
	}
	m.ConfigReloaded(true) // the process started with a valid file
	return m
}

// ConfigReloaded implements config.ReloadMetrics.
func (m reloadMetrics) ConfigReloaded(ok bool) {
	if !ok {
		m.reloaded.Set(0)
		return
	}
	m.reloaded.Set(1)
	m.reloadedAt.Set(float64(time.Now().UnixMilli()) / 1000)
}
