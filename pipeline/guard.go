package pipeline

import (
	"context"
	"slices"
	"time"

	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/topics"
)

// guardInterval is the interval between checks of the topics. A changed setting loses records
// only after hours.
const guardInterval = time.Minute

// guard compares the topics with the configuration, at once and each minute, until ctx
// ends. A metric counts the differences. The log has a line when one appears and when it is
// fixed. /-/ready also names topics that do not exist.
func (a *App) guard(ctx context.Context) {
	known, asked := map[string]kafka.Finding{}, time.Time{} // when the last answer came; zero: none has
	for {
		findings, unseen, err := a.findings(ctx)
		switch {
		case err == nil:
			if asked.IsZero() {
				for _, u := range unseen { // settings that this user may not read; no part needs them to work
					a.o.Logger.Warn("not everything about the topics can be checked", "err", u)
				}
			}
			asked = time.Now()
			known = a.reportFindings(known, findings)
		case !asked.IsZero() && ctx.Err() == nil: // before the first answer the roles report that Kafka is missing
			a.o.Logger.Warn("checking the topics failed", "err", err)
			if time.Since(asked) > 5*guardInterval {
				a.metrics.drift.Reset()
			}
		}
		every := guardInterval
		if asked.IsZero() || slices.ContainsFunc(findings, func(f kafka.Finding) bool { return f.By.Create }) {
			every = bucketsRetryInterval
		}
		if !retry.Sleep(ctx, every) {
			return
		}
	}
}

// reportFindings reports the findings that are not in known and those that are gone. It
// returns the current findings.
func (a *App) reportFindings(known map[string]kafka.Finding, findings []kafka.Finding) map[string]kafka.Finding {
	a.metrics.drift.WithLabelValues().Set(float64(len(findings)))
	now := map[string]kafka.Finding{}
	var missing []string
	for _, f := range findings {
		now[f.Topic+" "+f.What] = f
		_, old := known[f.Topic+" "+f.What]
		switch {
		case f.By.Create:
			a.ready.hints.add("topic "+f.Topic, errNoTopic.Error())
			if !old {
				missing = append(missing, f.Topic)
			}
		case !old:
			a.o.Logger.Error("topic has wrong settings: run orderclose topics check", "topic", f.Topic, "problem", f.What, "fix", f.Fix)
		}
	}
	if len(missing) > 0 {
		a.o.Logger.Error("topics do not exist: run orderclose topics apply", "topics", missing)
	}
	for key, f := range known {
		if _, still := now[key]; !still {
			a.ready.hints.remove("topic " + f.Topic)
			a.o.Logger.Info("topic is fixed", "topic", f.Topic, "problem", f.What)
		}
	}
	return now
}

func (a *App) findings(ctx context.Context) (findings []kafka.Finding, unseen []error, err error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	return a.conns.Kafka.CheckVisible(ctx, topics.Specs(a.config()))
}
