package app

import (
	"context"
	"slices"
	"time"

	"orderclose/internal/kafka"
	"orderclose/internal/partition"
)

// guardEvery is how often the topics are compared with what they must look like:
// a setting that somebody changed costs records only after hours.
const guardEvery = time.Minute

// guard compares the topics with the configuration, at once and each minute, until ctx
// ends. What differs is counted, and logged when it appears and when it is mended. Topics
// that do not exist are named in /-/ready too.
func (a *App) guard(ctx context.Context) {
	known, asked := map[string]kafka.Finding{}, false
	for {
		findings, unseen, err := a.findings(ctx)
		switch {
		case err == nil:
			if !asked {
				a.tellUnseen(unseen)
			}
			asked = true
			known = a.tellFindings(known, findings)
		case asked && ctx.Err() == nil: // before that the roles say what they wait for
			a.o.Logger.Warn("the topics could not be checked", "err", err)
		}
		every := guardEvery
		if !asked || slices.ContainsFunc(findings, func(f kafka.Finding) bool { return f.By.Create }) {
			every = bucketsEvery
		}
		if !partition.Sleep(ctx, every) {
			return
		}
	}
}

// tellUnseen says what this user may not look at: no part needs to, to do its work.
func (a *App) tellUnseen(unseen []error) {
	for _, u := range unseen {
		a.o.Logger.Warn("not everything about the topics can be checked", "err", u)
	}
}

// tellFindings tells what has changed since the findings that were known, and returns
// those that are known now.
func (a *App) tellFindings(known map[string]kafka.Finding, findings []kafka.Finding) map[string]kafka.Finding {
	a.metrics.TopicDrift(len(findings))
	now := map[string]kafka.Finding{}
	var missing []string
	for _, f := range findings {
		now[f.Topic+" "+f.What] = f
		_, old := known[f.Topic+" "+f.What]
		switch {
		case f.By.Create:
			a.ready.Hint("topic "+f.Topic, errNoTopic.Error())
			if !old {
				missing = append(missing, f.Topic)
			}
		case !old:
			a.o.Logger.Error("a topic is not as it must be: run orderclose topics check", "topic", f.Topic, "what", f.What, "mend", f.Mend)
		}
	}
	if len(missing) > 0 {
		a.o.Logger.Error("topics do not exist: run orderclose topics apply", "topics", missing)
	}
	for key, f := range known {
		if _, still := now[key]; !still {
			a.ready.Unhint("topic " + f.Topic)
			a.o.Logger.Info("a topic is mended", "topic", f.Topic, "what was", f.What)
		}
	}
	return now
}

func (a *App) findings(ctx context.Context) (findings []kafka.Finding, unseen []error, err error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	return a.o.Kafka.CheckSeen(ctx, TopicSpecs(a.config()))
}
