package app

import (
	"context"
	"time"

	"orderclose/internal/kafka"
	"orderclose/internal/partition"
)

// guardEvery is how often the topics are compared with what they must look like:
// a setting that somebody changed costs records only after hours.
const guardEvery = time.Minute

// guard compares the topics with the configuration each minute until ctx ends:
// what differs is counted, and logged when it appears and when it is mended.
func (a *App) guard(ctx context.Context) {
	known := map[string]kafka.Finding{}
	for partition.Sleep(ctx, guardEvery) {
		findings, err := a.findings(ctx)
		if err != nil {
			if ctx.Err() == nil {
				a.o.Logger.Warn("the topics could not be checked", "err", err)
			}
			continue
		}
		a.metrics.TopicDrift(len(findings))
		now := map[string]kafka.Finding{}
		for _, f := range findings {
			now[f.Topic+" "+f.What] = f
			if _, old := known[f.Topic+" "+f.What]; !old {
				a.o.Logger.Error("a topic is not as it must be: run orderclose topics check", "topic", f.Topic, "what", f.What, "mend", f.Mend)
			}
		}
		for key, f := range known {
			if _, still := now[key]; !still {
				a.o.Logger.Info("a topic is mended", "topic", f.Topic, "what was", f.What)
			}
		}
		known = now
	}
}

func (a *App) findings(ctx context.Context) ([]kafka.Finding, error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	// What this user may not look at was said when it started.
	findings, _, err := a.o.Kafka.CheckSeen(ctx, TopicSpecs(a.config()))
	return findings, err
}
