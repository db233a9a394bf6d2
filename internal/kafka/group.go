package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/consumer"
	"github.com/segmentio/kafka-go/protocol/joingroup"
	"github.com/segmentio/kafka-go/protocol/leavegroup"
	"github.com/segmentio/kafka-go/protocol/syncgroup"

	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/wire"
)

// DefaultSessionTimeout is the default of Options.SessionTimeout. A process that dies costs its partitions so long.
// A shorter session ends while a member logs in again at brokers that take 3 s for an answer: that takes up to 24 s.
const DefaultSessionTimeout = 30 * time.Second

// Times of a group membership. Heartbeats are frequent, because a member also learns of a planned rebalance by a heartbeat.
const (
	heartbeatEvery  = 250 * time.Millisecond
	heartbeatAtMost = 6 * heartbeatEvery // of one membership among many; see heartbeats
	commitEvery     = 200 * time.Millisecond
	rejoinBackoff   = 250 * time.Millisecond
	// rebalanceTimeout is for members to join: at slow brokers they hear of a rebalance after 7.5 s, and end their work within 4 s.
	rebalanceTimeout   = 15 * time.Second
	watchPartitions    = 5 * time.Second // how often the leader compares the number of partitions
	finalCommitTimeout = 2 * time.Second // for the last commit of a generation, with all retries
	// memberStopTimeout bounds the end of a membership: reads in flight, the last commit, and
	// leaving the group. A process has 10 s to stop.
	memberStopTimeout = 8 * time.Second
	// topicGone is how long a topic must be gone before its claims end. OrdercloseCannotFetch fires after a minute, and must not for a deleted topic.
	topicGone = 4 * watchPartitions
	// goneFor is for how long brokers must say that a topic is gone before its records count as lost. One answer is no proof: a broker
	// that has just started, or that the controller does not reach, may not know a topic.
	goneFor = time.Second
)

// Consume reads a topic as a member of a group until ctx ends. For each partition that the
// group assigns to this member, it calls serve in a new goroutine. The context of serve ends
// when the partition may go to another member. serve must return then, and not before.
//
// The offsets that serve reports by Claim.Done are committed within 200 ms, and once more
// after all serves of a generation have returned; this last commit is retried for 2 s. If
// the group rejects a commit because another member may own the partitions, the contexts of
// all serves end at once.
//
// Consume retries after every failure. It returns nil when ctx has ended, all serves have
// returned, and the member has left the group. It returns an error at once for an invalid group or
// topic, and one that wraps ErrFenced if another process has the same instance; see NameInstance.
func (c *Cluster) Consume(ctx context.Context, group, topic string, serve func(context.Context, wire.Claim)) error {
	if group == "" || topic == "" {
		return fmt.Errorf("group %q of topic %q: both need a name", group, topic)
	}
	instance, release := c.instance.take(group)
	defer release()
	m := &membership{cluster: c, group: group, topic: topic, instance: instance, log: c.opts.Logger.With("group", group, "topic", topic)}
	finishing, cancel := retry.WithFinishTime(ctx, memberStopTimeout)
	defer cancel()
	c.notJoined.Store(m, notJoined{})
	defer c.notJoined.Delete(m)
	rejected := retry.NewBackOff()
	for ctx.Err() == nil {
		g, err := m.join(ctx)
		if err == nil {
			c.notJoined.Delete(m)
		}
		switch {
		case ctx.Err() != nil:
		case errors.Is(err, kafka.FencedInstanceID):
			if err := m.fenced(ctx); err != nil {
				return err
			}
		case err != nil:
			m.log.Warn("join group failed, will retry", "err", err)
			first, _ := c.notJoined.LoadOrStore(m, notJoined{time.Now(), err})
			c.notJoined.Store(m, notJoined{first.(notJoined).since, err})
			retry.Sleep(ctx, rejoinBackoff)
		case g.run(ctx, serve):
			// Each generation repeats the work that was done and not committed. While the
			// coordinator rejects every commit, generations must not follow each other at once.
			retry.Sleep(ctx, rejected.NextBackOff())
		default:
			rejected.Reset()
		}
	}
	m.leave(finishing)
	return nil
}

// membership is this process as a member of a group, for one topic. It belongs to one goroutine.
// It keeps its member id while the coordinator moves, so that no other member waits for the
// session timeout of a forgotten one.
type membership struct {
	cluster *Cluster
	group   string
	topic   string
	log     *slog.Logger
	id      string // given by the coordinator; "": it is not a member

	instance string // "": the membership is not static
	waited   bool   // it was fenced, and has waited for the end of the other process
}

// protocolType and protocolName are what all members of a group must agree on.
const (
	protocolType = "consumer"
	protocolName = "range"
)

// join joins the group, also again, and returns the generation that begins. If this member is the
// group's leader, it assigns the partitions of all members.
func (m *membership) join(ctx context.Context) (*generation, error) {
	joined, err := m.joinGroup(ctx)
	for range 2 { // a group that has forgotten the id refuses it first, and then gives a new one
		if errors.Is(err, kafka.UnknownMemberId) || errors.Is(err, kafka.MemberIDRequired) {
			joined, err = m.joinGroup(ctx)
		}
	}
	if err != nil {
		return nil, err
	}
	g := &generation{membership: m, number: joined.GenerationID, assigned: notLeading,
		last: map[int]Commit{}, unsent: map[int]bool{}, noted: make(chan struct{}, 1), commitRequests: make(chan chan error)}
	req := &syncgroup.Request{GroupID: m.group, GenerationID: g.number, MemberID: m.id, GroupInstanceID: m.instance}
	switch {
	case joined.LeaderID == m.id:
		if req.Assignments, g.assigned, err = m.assign(ctx, joined.Members); err != nil {
			leaving, cancel := context.WithTimeout(ctx, requestTimeout)
			m.leave(leaving) // another member may be able to lead
			cancel()
			return nil, err
		}
	case m.is(joined.LeaderID): // the group keeps the assignment, and names the member id of before the start
		g.assigned = notKnown
	}
	res, err := m.send(ctx, rebalanceTimeout, req)
	if err != nil {
		return nil, err
	}
	synced := res.(*syncgroup.Response)
	if err := m.judge(protocol.SyncGroup, synced.ErrorCode); err != nil {
		return nil, err
	}
	g.own, err = assignedPartitions(synced.Assignments, m.topic)
	m.waited = false
	m.log.Debug("joined the group", "generation", g.number, "partitions", len(g.own))
	return g, err
}

// joinGroup waits until all members have joined, and sets the member id.
func (m *membership) joinGroup(ctx context.Context) (*joingroup.Response, error) {
	subscription, err := protocol.Marshal(0, consumer.Subscription{Topics: []string{m.topic}})
	if err != nil {
		return nil, err
	}
	res, err := m.send(ctx, rebalanceTimeout, &joingroup.Request{
		GroupID: m.group, MemberID: m.id, GroupInstanceID: m.instance, ProtocolType: protocolType,
		SessionTimeoutMS: int32(m.cluster.opts.SessionTimeout.Milliseconds()), RebalanceTimeoutMS: int32(rebalanceTimeout.Milliseconds()),
		Protocols: []joingroup.RequestProtocol{{Name: protocolName, Metadata: subscription}},
	})
	if err != nil {
		return nil, err
	}
	joined := res.(*joingroup.Response)
	switch kafka.Error(joined.ErrorCode) {
	case 0, kafka.MemberIDRequired:
		m.id = joined.MemberID
	case kafka.UnknownMemberId:
		m.id = ""
	}
	err = m.judge(protocol.JoinGroup, joined.ErrorCode)
	switch kafka.Error(joined.ErrorCode) {
	case kafka.InvalidSessionTimeout:
		err = fmt.Errorf("%w: set kafka.session_timeout, which is %v, to what group.min.session.timeout.ms and group.max.session.timeout.ms of the brokers allow",
			err, m.cluster.opts.SessionTimeout)
	case kafka.GroupMaxSizeReached:
		err = fmt.Errorf("%w: run fewer processes, or raise group.max.size of the brokers", err)
	case kafka.InconsistentGroupProtocol:
		err = fmt.Errorf("%w: programs that are not orderclose are members of this group: stop them, or set another topics.prefix", err)
	}
	return joined, err
}

// assign divides the partitions of each topic among the members that read it, in ranges. n is the
// number of partitions of this member's topic. A topic that does not exist has none.
func (m *membership) assign(ctx context.Context, members []joingroup.ResponseMember) (all []syncgroup.RequestAssignment, n int, err error) {
	var readers []kafka.GroupMember
	var partitions []kafka.Partition
	counts := map[string]int{}
	for _, member := range members {
		// The first fields are the same in every version.
		var subscription consumer.Subscription
		if err := protocol.Unmarshal(member.Metadata, 0, &subscription); err != nil {
			return nil, 0, fmt.Errorf("metadata of member %s: %w", member.MemberID, err)
		}
		readers = append(readers, kafka.GroupMember{ID: member.MemberID, Topics: subscription.Topics})
		for _, name := range subscription.Topics {
			if _, known := counts[name]; known {
				continue
			}
			found, err := m.cluster.fresh(ctx, name)
			if err == nil && found.code != 0 && found.code != kafka.UnknownTopicOrPartition {
				err = found.code
			}
			if err != nil {
				return nil, 0, fmt.Errorf("topic %s: %w", name, err)
			}
			counts[name] = len(found.leaders)
			for id := range found.leaders {
				partitions = append(partitions, kafka.Partition{Topic: name, ID: id})
			}
		}
	}
	for id, topics := range (kafka.RangeGroupBalancer{}).AssignGroups(readers, partitions) {
		assignment := consumer.Assignment{Version: consumer.MaxVersionSupported}
		for name, numbers := range topics {
			own := consumer.TopicPartition{Topic: name}
			for _, number := range numbers {
				own.Partitions = append(own.Partitions, int32(number))
			}
			assignment.AssignedPartitions = append(assignment.AssignedPartitions, own)
		}
		encoded, err := protocol.Marshal(consumer.MaxVersionSupported, assignment)
		if err != nil {
			return nil, 0, err
		}
		all = append(all, syncgroup.RequestAssignment{MemberID: id, Assignment: encoded})
	}
	return all, counts[m.topic], nil
}

// assignedPartitions returns the partitions of a topic in an assignment, which may be empty.
func assignedPartitions(encoded []byte, topic string) (own []int, err error) {
	if len(encoded) == 0 {
		return nil, nil
	}
	var assignment consumer.Assignment
	if err := protocol.Unmarshal(encoded, consumer.MaxVersionSupported, &assignment); err != nil {
		return nil, fmt.Errorf("assignment: %w", err)
	}
	for _, t := range assignment.AssignedPartitions {
		for _, number := range t.Partitions {
			if t.Topic == topic {
				own = append(own, int(number))
			}
		}
	}
	return own, nil
}

// leave removes this member from the group. While the group has no coordinator, leave retries until
// ctx ends. Without leaving, the member's partitions would stay unread for the session timeout.
func (m *membership) leave(ctx context.Context) {
	for m.id != "" && ctx.Err() == nil {
		res, err := m.send(ctx, 0, &leavegroup.Request{GroupID: m.group, MemberID: m.id})
		if err == nil {
			err = m.judge(protocol.LeaveGroup, res.(*leavegroup.Response).ErrorCode)
		}
		if err == nil || errors.Is(err, kafka.UnknownMemberId) {
			m.id = ""
			return
		}
		retry.Sleep(ctx, rejoinBackoff)
	}
}

// send sends a request of this member to the coordinator, which waits for other members for at most the given time.
func (m *membership) send(ctx context.Context, wait time.Duration, req kafka.Request) (kafka.Response, error) {
	to, err := m.cluster.transport.coordinator(ctx, m.group)
	if err != nil {
		return nil, err
	}
	to.wait = wait
	return m.cluster.transport.send(ctx, to, req)
}

// judge returns the error of an answer to a request of this member; nil if the code is 0.
func (m *membership) judge(request protocol.ApiKey, code int16) error {
	return m.cluster.transport.judge(about{request, m.topic, m.group}, kafka.Error(code))
}
