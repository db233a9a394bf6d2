package app

import (
	"orderclose/internal/cause"
	"orderclose/internal/config"
	"orderclose/internal/story"
)

// OrderPlaces are the topics that an order's records go through, in the order of
// their way.
func OrderPlaces(cfg *config.Config) []story.Place {
	var all []story.Place
	for _, b := range cfg.Buckets {
		all = append(all, story.Place{Topic: b.Topic, Kind: story.Bucket, Group: cfg.RelayGroup(b), Length: b.Length})
	}
	return append(all,
		story.Place{Topic: cfg.Topics.Close, Kind: story.Close, Group: cfg.CloserGroup()},
		story.Place{Topic: cfg.Topics.Replay, Kind: story.Replay, Group: cfg.ReplayGroup()},
		story.Place{Topic: cfg.Topics.DeadLetter, Kind: story.Dead},
		story.Place{Topic: cfg.Topics.Events, Kind: story.Events},
	)
}

// investigator finds out why orders were missed. What has few records that wait is
// looked at first.
func (a *App) investigator() *cause.Investigator {
	c := a.o.Config.Compensator.Causes
	o := cause.Options{Clock: a.o.Store.Now, Records: int64(c.Records), Time: c.Time, Logger: a.o.Logger.With("stage", "compensator")}
	if schedules, ok := any(a.o.Store).(cause.Schedules); ok {
		o.Schedules = schedules
	}
	if a.o.Kafka == nil {
		return cause.New(o)
	}
	o.Log = a.o.Kafka
	var buckets []story.Place
	for _, p := range OrderPlaces(a.o.Config) {
		switch p.Kind {
		case story.Bucket:
			buckets = append(buckets, p)
		case story.Close, story.Replay, story.Dead:
			o.Places = append(o.Places, p)
		}
	}
	o.Places = append(o.Places, buckets...)
	return cause.New(o)
}
