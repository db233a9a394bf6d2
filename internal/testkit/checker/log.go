package checker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// logs is the content of the topics, and the commits of the groups.
type logs struct {
	records map[string][]record         // by topic; each partition in order
	dead    map[string]bool             // keys in the dead-letter topic
	appends map[string]int              // by key: the number of its records in delay topics
	arrived map[string]bool             // keys in a topic other than the delay topics
	newest  map[string]time.Time        // by key: its last append to a delay topic
	ends    map[string]map[int32]int64  // by topic and partition
	commits map[string]map[int32]Commit // by group and partition: offset and metadata
}

type record struct {
	partition  int32
	offset     int64
	key        string
	appended   time.Time
	brokerTime bool
	due        time.Time
	hasDue     bool
	cause      string            // of a dead letter
	value      []byte            // of an event
	mediaType  string            // of an event
	resolution bool              // in the dead-letter topic: resolves a dead letter
	headers    map[string]string // of a record of the dead-letter topic
}

// appendedAfter reports whether the key was appended to a delay topic after r was.
func (l *logs) appendedAfter(r record) bool { return l.newest[r.key].After(r.appended) }

// waiting returns the keys with a record in a delay topic that is not done. It is empty unless
// ClockSkew is set: a record that was appended later may then have an earlier append time.
func (l *logs) waiting(e Expect) map[string]bool {
	waits := map[string]bool{}
	for topic, group := range e.Delays {
		for _, r := range l.records[topic] {
			if e.ClockSkew && !l.commits[group][r.partition].covers(r.offset) {
				waits[r.key] = true
			}
		}
	}
	return waits
}

// arrivals counts the records in the close topic, by key.
func (l *logs) arrivals(e Expect) map[string]int {
	n := map[string]int{}
	for _, r := range l.records[e.CloseTopic] {
		n[r.key]++
	}
	return n
}

func readLogs(ctx context.Context, s Servers, e Expect) (*logs, error) {
	topics := []string{e.DeadLetterTopic, e.CloseTopic}
	if e.EventsTopic != "" {
		topics = append(topics, e.EventsTopic)
	}
	for topic := range e.Delays {
		topics = append(topics, topic)
	}
	opts := []kgo.Opt{kgo.SeedBrokers(s.Brokers...), kgo.ClientID("checker"), kgo.FetchMaxWait(100 * time.Millisecond)}
	if s.Dial != nil {
		opts = append(opts, kgo.Dialer(s.Dial))
	}
	if s.TLS != nil {
		opts = append(opts, kgo.DialTLSConfig(s.TLS))
	}
	if s.SASL != nil {
		opts = append(opts, kgo.SASL(s.SASL))
	}
	client, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	l := &logs{
		records: map[string][]record{}, dead: map[string]bool{}, appends: map[string]int{}, arrived: map[string]bool{}, newest: map[string]time.Time{},
		ends: map[string]map[int32]int64{}, commits: map[string]map[int32]Commit{},
	}
	// The commits are read first, so that the logs have everything that the commits cover.
	admin := kadm.NewClient(client)
	for _, group := range append(slices.Collect(maps.Values(e.Delays)), e.CloserGroup) {
		offsets, err := committed(ctx, admin, group)
		if err != nil && !errors.Is(err, kerr.GroupIDNotFound) { // then no member has ever read the topic
			return nil, fmt.Errorf("group %s: %w", group, err)
		}
		l.commits[group] = map[int32]Commit{}
		offsets.Each(func(o kadm.OffsetResponse) {
			l.commits[group][o.Partition] = Commit{Offset: o.At, Metadata: o.Metadata}
		})
	}
	starts, err := l.bounds(ctx, admin, topics)
	if err != nil {
		return nil, err
	}
	if err := l.read(ctx, client, e, starts); err != nil {
		return nil, err
	}
	for topic, records := range l.records {
		_, delay := e.Delays[topic]
		for _, r := range records {
			switch {
			case topic == e.EventsTopic:
				continue
			case !delay:
				l.arrived[r.key] = true
				l.dead[r.key] = l.dead[r.key] || topic == e.DeadLetterTopic
				continue
			case r.appended.After(l.newest[r.key]):
				l.newest[r.key] = r.appended
			}
			l.appends[r.key]++
		}
	}
	return l, nil
}

// read reads every partition from starts up to ends.
func (l *logs) read(ctx context.Context, client *kgo.Client, e Expect, starts map[string]map[int32]kgo.Offset) error {
	left := 0
	for topic, partitions := range starts {
		for p, start := range partitions {
			if n := l.ends[topic][p] - start.EpochOffset().Offset; n > 0 {
				left++
			} else {
				delete(partitions, p)
			}
		}
	}
	client.AddConsumePartitions(starts)
	for left > 0 {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		fetches.EachRecord(func(r *kgo.Record) {
			end := l.ends[r.Topic][r.Partition]
			if r.Offset >= end {
				return
			}
			l.records[r.Topic] = append(l.records[r.Topic], toRecord(r, e))
			if r.Offset == end-1 {
				left--
			}
		})
	}
	return nil
}

func toRecord(r *kgo.Record, e Expect) record {
	rec := record{
		partition: r.Partition, offset: r.Offset, key: string(r.Key),
		appended: r.Timestamp, brokerTime: r.Attrs.TimestampType() == 1,
	}
	if r.Topic == e.EventsTopic {
		rec.value = r.Value
	}
	if r.Topic == e.DeadLetterTopic {
		rec.headers = map[string]string{}
	}
	for _, h := range r.Headers {
		if rec.headers != nil {
			rec.headers[h.Key] = string(h.Value)
		}
		switch h.Key {
		case "content-type":
			rec.mediaType = string(h.Value)
		case "cause":
			rec.cause = string(h.Value)
		case "settles":
			rec.resolution = true
		case "due":
			if ms, err := strconv.ParseInt(string(h.Value), 10, 64); err == nil {
				rec.due, rec.hasDue = time.UnixMilli(ms), true
			}
		}
	}
	rec.resolution = rec.resolution && rec.cause == ""
	return rec
}

// committed returns the offsets that a group has committed. The first question about any group makes a broker create
// its topic of offsets, and no broker coordinates groups until that exists.
func committed(ctx context.Context, admin *kadm.Client, group string) (kadm.OffsetResponses, error) {
	for {
		offsets, err := admin.FetchOffsets(ctx, group)
		if !errors.Is(err, kerr.CoordinatorNotAvailable) {
			return offsets, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// bounds stores the ends of the partitions in l.ends and returns their starts.
func (l *logs) bounds(ctx context.Context, admin *kadm.Client, topics []string) (map[string]map[int32]kgo.Offset, error) {
	first, err1 := admin.ListStartOffsets(ctx, topics...)
	ends, err2 := admin.ListEndOffsets(ctx, topics...)
	if err := errors.Join(err1, err2, first.Error(), ends.Error()); err != nil {
		return nil, fmt.Errorf("offsets of %v: %w", topics, err)
	}
	starts := map[string]map[int32]kgo.Offset{}
	for topic, partitions := range first {
		starts[topic], l.ends[topic] = map[int32]kgo.Offset{}, map[int32]int64{}
		for p, o := range partitions {
			starts[topic][p], l.ends[topic][p] = kgo.NewOffset().At(o.Offset), ends[topic][p].Offset
		}
	}
	return starts, nil
}
