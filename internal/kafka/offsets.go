package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/listoffsets"
	"golang.org/x/sync/errgroup"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/retry"
)

const (
	// offsetRequestsAtOnce bounds how many requests for offsets one call of Offsets has in flight.
	offsetRequestsAtOnce = 8
	// leaderTimeout is how long a partition may have no leader that answers before that is an error
	// of Offsets. A leader that is moved answers again within some 100 ms.
	leaderTimeout = 2 * time.Second
)

// Moment is a place in the log of a partition: LogStart, LogEnd, or the first record that was
// appended at a time or later, as MomentOf returns it.
type Moment int64

// The moments that are no times.
const (
	LogStart Moment = -2 // the first offset
	LogEnd   Moment = -1 // the offset that the next record will get
)

// MomentOf returns the moment of the first record that was appended at t or later.
func MomentOf(t time.Time) Moment { return Moment(max(orderclose.CeilMilli(t).UnixMilli(), 0)) }

// OffsetQuery asks for the offsets of some moments of one partition.
type OffsetQuery struct {
	Topic     string
	Partition int
	At        []Moment
}

// OffsetAnswer is the answer to an OffsetQuery.
type OffsetAnswer struct {
	// Offsets has one offset for each moment. If no record was appended at a time or later, it is the
	// end of the log. Offsets mean nothing if Err is set.
	Offsets []int64
	Err     error // names the topic and the partition
}

// OffsetQueries asks for the same moments of the partitions 0 to n-1 of a topic.
func OffsetQueries(topic string, n int, at ...Moment) []OffsetQuery {
	queries := make([]OffsetQuery, n)
	for p := range queries {
		queries[p] = OffsetQuery{Topic: topic, Partition: p, At: at}
	}
	return queries
}

// Offsets answers the queries, in their order, and reads no record. A request asks one broker about
// all partitions that the broker leads. Kafka accepts one moment of a partition in each request. So
// each broker gets as many requests as the query with the most moments has, and one more if a query
// has LogEnd or a time after the last record. Equal moments of one partition are asked for once.
//
// LogEnd is asked for after all other moments of all queries. While a partition has no leader that
// answers, Offsets asks again for up to 2 s, about this partition only. An error of one partition
// does not hide the others.
func (c *Cluster) Offsets(ctx context.Context, queries []OffsetQuery) []OffsetAnswer {
	found := map[logMoment]*foundOffset{}
	want := func(of topicPartition, m Moment) *foundOffset {
		at := logMoment{of, m}
		if found[at] == nil {
			found[at] = &foundOffset{logMoment: at}
		}
		return found[at]
	}
	for _, q := range queries {
		for _, m := range q.At {
			want(topicPartition{q.Topic, q.Partition}, m)
		}
	}
	c.findOffsets(ctx, found, false)
	for _, f := range slices.Collect(maps.Values(found)) {
		if f.moment != LogEnd && (f.err != nil || f.isAfterTheEnd()) {
			end := want(f.topicPartition, LogEnd)
			end.err = cmp.Or(end.err, f.err) // a broker that hangs is not asked twice
		}
	}
	c.findOffsets(ctx, found, true)
	answers := make([]OffsetAnswer, len(queries))
	for i, q := range queries {
		a := &answers[i]
		for _, m := range q.At {
			f := want(topicPartition{q.Topic, q.Partition}, m)
			if f.isAfterTheEnd() {
				f = want(f.topicPartition, LogEnd)
			}
			if f.err == nil && f.offset < 0 {
				f.err = errors.New("not known yet")
			}
			if a.Offsets = append(a.Offsets, f.offset); a.Err == nil && f.err != nil {
				a.Err = fmt.Errorf("offsets of %s/%d: %w", q.Topic, q.Partition, f.err)
			}
		}
	}
	return answers
}

// logMoment is a moment of one partition.
type logMoment struct {
	topicPartition
	moment Moment
}

// foundOffset is the answer about a logMoment. The offset is negative if no record was appended at
// the time or later.
type foundOffset struct {
	logMoment
	offset int64
	err    error
}

// isAfterTheEnd reports whether no record was appended at the time or later.
func (f *foundOffset) isAfterTheEnd() bool { return f.err == nil && f.offset < 0 && f.moment >= 0 }

// findOffsets asks the leaders, about the ends of the logs or about all other moments, and sets the offsets and the errors. While a
// partition has no leader that answers, it asks again.
func (c *Cluster) findOffsets(ctx context.Context, found map[logMoment]*foundOffset, ends bool) {
	var wanted []*foundOffset
	for at, f := range found {
		if (at.moment == LogEnd) == ends && f.err == nil {
			wanted = append(wanted, f)
		}
	}
	_ = repeat(ctx, leaderTimeout, leaderMoves, func() error {
		var requests errgroup.Group
		requests.SetLimit(offsetRequestsAtOnce)
		for to, part := range c.offsetRequests(ctx, wanted) {
			requests.Go(func() error {
				c.askLeader(ctx, to.leader, part)
				return nil
			})
		}
		requests.Wait()
		wanted = slices.DeleteFunc(wanted, func(f *foundOffset) bool { return !leaderMoves(f.err) })
		if len(wanted) == 0 {
			return nil
		}
		return wanted[0].err
	})
}

// leaderMoves reports whether an error may end as soon as the partition has another leader: the
// broker says so, or does not answer.
func leaderMoves(err error) bool {
	var code kafka.Error
	var access *AccessError
	if errors.As(err, &code) {
		switch code {
		case kafka.NotLeaderForPartition, kafka.LeaderNotAvailable, kafka.ReplicaNotAvailable, kafka.FencedLeaderEpoch, kafka.UnknownLeaderEpoch,
			kafka.BrokerNotAvailable, kafka.OffsetNotAvailable:
			return true
		}
		return false
	}
	return err != nil && !errors.As(err, &access)
}

// leaderRequest is one of the requests to a leader. The number is that of the moment within its
// partition.
type leaderRequest struct {
	leader string // its address
	number int
}

// offsetRequests divides the moments into requests. It sets the error of those that cannot be asked
// for.
func (c *Cluster) offsetRequests(ctx context.Context, wanted []*foundOffset) map[leaderRequest][]*foundOffset {
	requests, moments := map[leaderRequest][]*foundOffset{}, map[topicPartition]int{}
	byTopic := map[string][]*foundOffset{}
	for _, f := range wanted {
		byTopic[f.topic] = append(byTopic[f.topic], f)
	}
	for name, all := range byTopic {
		known, err := c.transport.routable(ctx, name)
		for _, f := range all {
			leader := ""
			if f.err = err; err == nil {
				leader, f.err = c.transport.topology.leader(known, f.partition)
			}
			if f.err == nil {
				r := leaderRequest{leader, moments[f.topicPartition]}
				moments[f.topicPartition]++
				requests[r] = append(requests[r], f)
			}
		}
	}
	return requests
}

// askLeader sends one request, and sets the offsets and the errors. A partition may be in it only
// once.
func (c *Cluster) askLeader(ctx context.Context, leader string, wanted []*foundOffset) {
	byPartition := map[topicPartition]*foundOffset{}
	req, topics := &listoffsets.Request{ReplicaID: -1}, map[string]int{} // the index of each topic
	for _, f := range wanted {
		f.err = kafka.UnknownTopicOrPartition
		byPartition[f.topicPartition] = f
		i, there := topics[f.topic]
		if !there {
			i = len(req.Topics)
			topics[f.topic] = i
			req.Topics = append(req.Topics, listoffsets.RequestTopic{Topic: f.topic})
		}
		t := &req.Topics[i]
		t.Partitions = append(t.Partitions, listoffsets.RequestPartition{Partition: int32(f.partition), CurrentLeaderEpoch: -1, Timestamp: int64(f.moment)})
	}
	res, err := c.transport.send(ctx, route{address: leader}, req)
	if err != nil {
		for _, f := range wanted {
			f.err = err
			if ctx.Err() != context.Canceled { // no answer: the leader may be another broker by now
				c.transport.topology.suspect(f.topic)
			}
		}
		return
	}
	for _, t := range res.(*listoffsets.Response).Topics {
		for _, p := range t.Partitions {
			if f := byPartition[topicPartition{t.Topic, int(p.Partition)}]; f != nil {
				f.offset, f.err = p.Offset, c.transport.judge(about{request: protocol.ListOffsets, topic: f.topic}, kafka.Error(p.ErrorCode))
			}
		}
	}
}

// Bounds returns the first offset of a partition, and the offset that its next record will
// get. Offsets asks about many partitions with fewer requests.
func (c *Cluster) Bounds(ctx context.Context, topic string, partition int) (first, end int64, err error) {
	a := c.Offsets(ctx, []OffsetQuery{{topic, partition, []Moment{LogStart, LogEnd}}})[0]
	if a.Err != nil {
		return 0, 0, a.Err
	}
	return a.Offsets[0], a.Offsets[1], nil
}

// OffsetAt returns the offset of the first record that was appended at t or later, or the end
// of the partition if there is none. It reads no record.
func (c *Cluster) OffsetAt(ctx context.Context, topic string, partition int, t time.Time) (int64, error) {
	a := c.Offsets(ctx, []OffsetQuery{{topic, partition, []Moment{MomentOf(t)}}})[0]
	return a.Offsets[0], a.Err
}

// noteEnds asks where all logs end that this process has claimed, by one request to each broker: loops that read lazily do not
// know how much waits, and nobody can ask once a topic is gone. An end counts if the topic has the same id afterwards. noteEnds
// returns at once if it was called less than watchPartitions ago, for whichever generation.
func (c *Cluster) noteEnds(ctx context.Context) {
	now, last := sinceStart(), c.endsNoted.Load()
	if last != 0 && now-last < int64(watchPartitions) || !c.endsNoted.CompareAndSwap(last, now) {
		return
	}
	var logs []*claimedLog
	var queries []OffsetQuery
	for key := range c.claimed.Range {
		log := key.(*claimedLog)
		logs, queries = append(logs, log), append(queries, OffsetQuery{log.topic, log.number, []Moment{LogEnd}})
	}
	answers, answered := c.Offsets(ctx, queries), time.Now()
	retry.Sleep(ctx, metadataTTL+minRefreshInterval) // in the meantime a refresh in the background asks for the ids
	for i, log := range logs {
		_, same := c.transport.topology.cached([]string{log.topic}, func(t topic) bool {
			return t.id == log.topicID && t.at.After(answered) //mutant:end-of-another-log
		})
		if same && answers[i].Err == nil {
			log.end.Store(answers[i].Offsets[0])
		}
	}
}
