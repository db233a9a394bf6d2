package checker

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// logs is the content of the topics, and the commits of the groups.
type logs struct {
	records   map[string][]record         // by topic; each partition in order
	dead      map[string]bool             // keys in the dead-letter topic
	appends   map[string]int              // by key: the number of its records in delay topics
	arrived   map[string]bool             // keys in a topic other than the delay topics
	newest    map[string]time.Time        // by key: its last append to a delay topic
	ends      map[string]map[int32]int64  // by topic and partition
	committed map[string]map[int32]int64  // by group and partition
	metadata  map[string]map[int32]string // by group and partition: the metadata of the commit
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
			c := Commit{Offset: l.committed[group][r.partition], Metadata: l.metadata[group][r.partition]}
			if e.ClockSkew && !c.covers(r.offset) {
				waits[r.key] = true
			}
		}
	}
	return waits
}

// arrivals counts the records in the close topic and the replay topic, by key.
func (l *logs) arrivals(e Expect) map[string]int {
	n := map[string]int{}
	for topic := range e.closeTopics() {
		for _, r := range l.records[topic] {
			n[r.key]++
		}
	}
	return n
}

func readLogs(ctx context.Context, s Servers, e Expect) (*logs, error) {
	topics := []string{e.DeadLetterTopic}
	for topic := range e.closeTopics() {
		topics = append(topics, topic)
	}
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
		ends: map[string]map[int32]int64{}, committed: map[string]map[int32]int64{}, metadata: map[string]map[int32]string{},
	}
	// The commits are read first, so that the logs have everything that the commits cover.
	var groups []string
	for _, group := range e.closeTopics() {
		groups = append(groups, group)
	}
	for _, group := range e.Delays {
		groups = append(groups, group)
	}
	for _, group := range groups {
		if l.committed[group], l.metadata[group], err = commits(ctx, client, group); err != nil {
			return nil, fmt.Errorf("group %s: %w", group, err)
		}
	}
	starts, err := l.bounds(ctx, client, topics)
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

// bounds stores the ends of the partitions in l.ends and returns their starts.
func (l *logs) bounds(ctx context.Context, client *kgo.Client, topics []string) (map[string]map[int32]kgo.Offset, error) {
	meta := kmsg.NewPtrMetadataRequest()
	for _, topic := range topics {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = kmsg.StringPtr(topic)
		meta.Topics = append(meta.Topics, t)
	}
	res, err := meta.RequestWith(ctx, client)
	if err != nil {
		return nil, err
	}
	starts := map[string]map[int32]kgo.Offset{}
	for _, t := range res.Topics {
		if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
			return nil, fmt.Errorf("topic %s: %w", *t.Topic, err)
		}
		var partitions []int32
		for _, p := range t.Partitions {
			partitions = append(partitions, p.Partition)
		}
		first, err := listOffsets(ctx, client, *t.Topic, partitions, -2)
		if err != nil {
			return nil, err
		}
		if l.ends[*t.Topic], err = listOffsets(ctx, client, *t.Topic, partitions, -1); err != nil {
			return nil, err
		}
		starts[*t.Topic] = map[int32]kgo.Offset{}
		for p, offset := range first {
			starts[*t.Topic][p] = kgo.NewOffset().At(offset)
		}
	}
	return starts, nil
}

func listOffsets(ctx context.Context, client *kgo.Client, topic string, partitions []int32, at int64) (map[int32]int64, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = topic
	for _, p := range partitions {
		rp := kmsg.NewListOffsetsRequestTopicPartition()
		rp.Partition, rp.Timestamp = p, at
		t.Partitions = append(t.Partitions, rp)
	}
	req.Topics = append(req.Topics, t)
	offsets := map[int32]int64{}
	var errs []error
	for _, shard := range client.RequestSharded(ctx, req) {
		if shard.Err != nil {
			errs = append(errs, shard.Err)
			continue
		}
		for _, t := range shard.Resp.(*kmsg.ListOffsetsResponse).Topics {
			for _, p := range t.Partitions {
				errs = append(errs, kerr.ErrorForCode(p.ErrorCode))
				offsets[p.Partition] = p.Offset
			}
		}
	}
	return offsets, errors.Join(errs...)
}

// commits returns the committed offsets of a group and their metadata, by partition.
func commits(ctx context.Context, client *kgo.Client, group string) (offsets map[int32]int64, metadata map[int32]string, err error) {
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Group = group
	rg := kmsg.NewOffsetFetchRequestGroup()
	rg.Group = group
	req.Groups = append(req.Groups, rg)
	res, err := req.RequestWith(ctx, client)
	if err != nil {
		return nil, nil, err
	}
	offsets, metadata = map[int32]int64{}, map[int32]string{}
	add := func(partition int32, offset int64, text *string) {
		offsets[partition] = offset
		if text != nil {
			metadata[partition] = *text
		}
	}
	for _, t := range res.Topics {
		for _, p := range t.Partitions {
			add(p.Partition, p.Offset, p.Metadata)
		}
	}
	for _, g := range res.Groups {
		err := kerr.ErrorForCode(g.ErrorCode)
		if errors.Is(err, kerr.GroupIDNotFound) {
			continue // no member has ever read the topic
		}
		if err != nil {
			return nil, nil, err
		}
		for _, t := range g.Topics {
			for _, p := range t.Partitions {
				add(p.Partition, p.Offset, p.Metadata)
			}
		}
	}
	return offsets, metadata, nil
}
