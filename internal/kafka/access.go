package kafka

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
)

// AccessError is a connection or a request that the cluster refuses to us, or
// that we refuse to a broker. Its cause is unwrapped.
type AccessError struct {
	What string // who may not do what
	Do   string // what to do about it
	Err  error
}

// Error says what is refused, what to do, and what the cluster said.
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

// anyTopic is the resource of an access that is needed to one topic, whichever.
const anyTopic = "Topic (any)"

// denied explains that the cluster refuses an access to who.
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

// needed returns the ACL that a request needs, given the kind of request and the
// code by which it was refused: the same request needs one on its group and one
// on its topics. ok is false if the code is no lack of an ACL.
func needed(request protocol.ApiKey, code kafka.Error) (a access, ok bool) {
	switch code {
	case kafka.TopicAuthorizationFailed:
		a.resource = "Topic"
	case kafka.GroupAuthorizationFailed:
		a.resource = "Group"
	case kafka.ClusterAuthorizationFailed:
		a.resource = "Cluster"
	default:
		return a, false
	}
	switch request {
	case protocol.Produce:
		a.operation = "Write"
	case protocol.Fetch, protocol.OffsetCommit, protocol.JoinGroup, protocol.SyncGroup, protocol.Heartbeat, protocol.LeaveGroup:
		a.operation = "Read"
	case protocol.CreateTopics:
		a.operation = "Create"
	case protocol.CreatePartitions:
		a.operation = "Alter"
	case protocol.DeleteTopics, protocol.DeleteGroups:
		a.operation = "Delete"
	case protocol.DescribeConfigs:
		a.operation = "DescribeConfigs"
	case protocol.AlterConfigs, protocol.IncrementalAlterConfigs:
		a.operation = "AlterConfigs"
	case protocol.InitProducerId: // refused only if no topic at all may be written
		a.operation, a.resource = "Write", anyTopic
	default:
		a.operation = "Describe"
	}
	return a, true
}

// explainConnection says why a connection was refused, by either side, and what
// to do. It returns err itself if it cannot tell, or if that is no refusal. fresh
// says that no connection has succeeded yet: then a connection that breaks is
// more likely one that was never meant to be than a broker that restarts.
func explainConnection(err error, s Security, fresh bool) error {
	explained := func(what, do string) error { return &AccessError{What: what, Do: do, Err: err} }
	var (
		access   *AccessError
		untrue   *tls.CertificateVerificationError
		hostname x509.HostnameError
		invalid  x509.CertificateInvalidError
		noTLS    tls.RecordHeaderError
		failed   *connectError
	)
	if err == nil || errors.As(err, &access) {
		return err
	}
	if errors.As(err, &failed) {
		err = failed // without the client library's words, which name anyBroker
	}
	switch {
	case errors.Is(err, kafka.SASLAuthenticationFailed):
		return explained(fmt.Sprintf("the broker does not let %s in by %s", s.who(), mechanismOf(s)),
			"check the password, and that the user has one for this mechanism")
	case errors.Is(err, kafka.UnsupportedSASLMechanism):
		return explained(fmt.Sprintf("the broker does not take SASL %s here", mechanismOf(s)),
			"set ORDERCLOSE_KAFKA_SASL_MECHANISM to one that its listener has enabled")
	case errors.Is(err, kafka.IllegalSASLState):
		return explained("this listener of the broker takes no SASL", "name the port of its SASL listener, or unset ORDERCLOSE_KAFKA_SASL_MECHANISM")
	case errors.As(err, &hostname):
		return explained("the broker's certificate is not for the host that it was called by",
			"name brokers, and let them advertise themselves, as their certificates do")
	case errors.As(err, &invalid):
		return explained("the broker's certificate is not valid", "renew it on the broker, or mend the clock here")
	case errors.As(err, &untrue):
		return explained("the broker's certificate is not signed by anybody trusted here",
			"name the file with its authority's certificate in ORDERCLOSE_KAFKA_TLS_CA_FILE")
	case errors.As(err, &noTLS):
		return explained("this listener of the broker speaks no TLS", "name the port of its TLS listener")
	case remoteAlert(err) && len(certificates(s.TLS)) == 0:
		return explained("the broker ended the TLS handshake; it may want a certificate of the client",
			"set ORDERCLOSE_KAFKA_TLS_CERT_FILE and ORDERCLOSE_KAFKA_TLS_KEY_FILE")
	case remoteAlert(err):
		return explained(fmt.Sprintf("the broker does not take %s", s.who()),
			"have the certificate signed by an authority that the broker trusts, and renew it in time")
	case fresh && hungUp(err):
		return explained("the broker hung up on a connection "+s.describe(), "name a port whose listener takes such connections, or set "+s.missing())
	}
	return err
}

// remoteAlert says whether the other side ended the TLS handshake.
func remoteAlert(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "remote error"
}

// hungUp says whether the other side closed the connection without a word.
func hungUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

func mechanismOf(s Security) string {
	if s.SASL == nil {
		return "no mechanism"
	}
	return s.SASL.Mechanism
}

// describe is how a connection is secured, in words.
func (s Security) describe() string {
	switch {
	case s.TLS != nil && s.SASL != nil:
		return "with TLS and SASL"
	case s.TLS != nil:
		return "with TLS and without SASL"
	case s.SASL != nil:
		return "without TLS and with SASL"
	}
	return "without TLS and SASL"
}

// missing names the variables that would add what the connection has not.
func (s Security) missing() string {
	var names []string
	if s.TLS == nil {
		names = append(names, "ORDERCLOSE_KAFKA_TLS=on")
	}
	if s.SASL == nil {
		names = append(names, "ORDERCLOSE_KAFKA_SASL_MECHANISM")
	}
	if len(names) == 0 {
		return "ORDERCLOSE_KAFKA_TLS=off"
	}
	return strings.Join(names, " or ")
}
