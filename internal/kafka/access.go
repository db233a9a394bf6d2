package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"

	"github.com/orderclose/orderclose/internal/tlsfault"
	"github.com/orderclose/orderclose/internal/wire"
)

// AccessError means that the cluster refuses a connection or a request of this user, or that
// this process refuses a connection because of the broker's certificate. It unwraps to its
// cause.
type AccessError struct {
	What string // who lacks which access
	Do   string // how to fix it
	Err  error  // the answer of the cluster, or the error of the connection
}

// Error returns what was refused, how to fix it, and the cause.
func (e *AccessError) Error() string { return fmt.Sprintf("%s; %s: %v", e.What, e.Do, e.Err) }

// Unwrap returns the cause.
func (e *AccessError) Unwrap() error { return e.Err }

// access is an ACL: an operation on a resource, such as Write on Topic order-close.
type access struct {
	operation string
	resource  string // Topic, Group, Cluster or anyTopic
	name      string // of the resource; "" if not known
}

func (a access) String() string {
	return strings.TrimRight(fmt.Sprintf("%s on %s %s", a.operation, a.resource, a.name), " ")
}

// anyTopic is the resource of an access that is needed for at least one topic, no matter
// which.
const anyTopic = "Topic (any)"

// denied returns the error of a principal, who, that lacks an access.
func denied(who string, a access, err error) *AccessError {
	do := "grant it"
	switch {
	case a.operation == "DescribeConfigs":
		do += " (AlterConfigs includes it)"
	case a.operation == "Describe" && a.resource == "Topic":
		do += " (Read, Write, Alter and Delete include it)"
	case a.operation == "Describe" && a.resource == "Group":
		do += " (Read and Delete include it)"
	}
	return &AccessError{
		What: fmt.Sprintf("%s lacks the ACL %v", who, a),
		Do:   do + "; docs/security.md lists what each part needs",
		Err:  err,
	}
}

// neededACL returns the ACL that a refused request needs. It depends on the kind of
// request and on the code of the refusal: the same request needs one ACL on its group and
// another on its topics. refused is false if the code does not mean a missing ACL.
func neededACL(of about, code kafka.Error) (a access, refused bool) {
	a.operation = cmp.Or(neededOperations[of.request], "Describe")
	switch code {
	case kafka.TopicAuthorizationFailed:
		a.resource, a.name = "Topic", of.topic
	case kafka.GroupAuthorizationFailed:
		a.resource, a.name = "Group", of.group
	case kafka.ClusterAuthorizationFailed:
		a.resource = "Cluster"
	default:
		return a, false
	}
	if of.request == protocol.InitProducerId { // is refused only if the principal may write to no topic at all
		a.resource = anyTopic
	}
	return a, true
}

// neededOperations has the operation of each request that needs another one than Describe.
var neededOperations = map[protocol.ApiKey]string{
	protocol.Produce: "Write", protocol.InitProducerId: "Write",
	protocol.Fetch: "Read", protocol.OffsetCommit: "Read",
	protocol.JoinGroup: "Read", protocol.SyncGroup: "Read", protocol.Heartbeat: "Read", protocol.LeaveGroup: "Read",
	protocol.CreateTopics: "Create", protocol.CreatePartitions: "Alter",
	protocol.DescribeConfigs: "DescribeConfigs", protocol.AlterConfigs: "AlterConfigs", protocol.IncrementalAlterConfigs: "AlterConfigs",
}

// explainConnection explains why either side refused a connection, and how to fix it. It
// returns err itself if err is no refusal or has no explanation. fresh says that no
// connection has succeeded yet: then a broken connection more likely shows a wrong
// configuration than a broker that restarts.
func explainConnection(err error, s Security, fresh bool) error {
	explained := func(what, do string) error { return &AccessError{What: what, Do: do, Err: err} }
	if access := (*AccessError)(nil); err == nil || errors.As(err, &access) {
		return err
	}
	switch {
	case tlsfault.Is(err):
		return explained("TLS to the broker failed", tlsfault.Do)
	case errors.Is(err, kafka.SASLAuthenticationFailed):
		do := "check the password, and that the user has credentials for this mechanism"
		if mechanismOf(s) == OAuthBearer {
			do = "check the token's issuer, audience, scope and end, and the clock of the broker"
		}
		return explained(fmt.Sprintf("the broker rejects %s with %s", s.who(), mechanismOf(s)), do)
	case errors.Is(err, kafka.UnsupportedSASLMechanism):
		return explained(fmt.Sprintf("the broker does not accept SASL %s on this listener", mechanismOf(s)),
			"set ORDERCLOSE_KAFKA_SASL_MECHANISM to one that its listener has enabled")
	case errors.Is(err, kafka.IllegalSASLState):
		return explained("this listener of the broker does not accept SASL", "use the port of its SASL listener, or unset ORDERCLOSE_KAFKA_SASL_MECHANISM")
	case fresh && tlsfault.ClosedByPeer(err):
		return explained(fmt.Sprintf("the broker closed a connection (%v)", s),
			"use the port of a listener that accepts such connections, or other settings of docs/security.md")
	}
	return err
}

func mechanismOf(s Security) string {
	if s.SASL == nil {
		return "no mechanism"
	}
	return s.SASL.Mechanism
}

// refusal adds wire.ErrRefused to err if the broker has rejected these very bytes
// for good, so that a retry is useless. It returns err itself if a retry may succeed.
func refusal(err error) error {
	switch {
	case errors.Is(err, kafka.MessageSizeTooLarge), errors.Is(err, kafka.RecordListTooLarge),
		errors.Is(err, kafka.InvalidRecord):
		return fmt.Errorf("%w: %w", wire.ErrRefused, err)
	}
	return err
}

// Passes reports whether an error may end by itself, as while brokers start: a broker does not answer,
// the cluster has no leader or controller, or has fewer brokers than a topic wants replicas.
func Passes(err error) bool {
	var access *AccessError
	var code kafka.Error
	switch {
	case err == nil, errors.As(err, &access), errors.Is(err, context.Canceled):
		return false
	case errors.As(err, &code):
		return code.Temporary() || code == kafka.BrokerNotAvailable || code == kafka.InvalidReplicationFactor || code == kafka.Unknown
	}
	return true
}

// evicted reports whether a commit was rejected because the partitions may belong to
// another member now.
func evicted(err error) bool {
	return errors.Is(err, kafka.UnknownMemberId) || errors.Is(err, kafka.IllegalGeneration) || errors.Is(err, kafka.RebalanceInProgress) ||
		errors.Is(err, kafka.FencedInstanceID)
}
