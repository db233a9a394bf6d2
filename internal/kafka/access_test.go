package kafka

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/describeconfigs"
	"github.com/segmentio/kafka-go/protocol/offsetcommit"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestExplainConnection_SaysWhatFailedAndWhatToDo(t *testing.T) {
	user := Security{TLS: &tls.Config{}, SASL: &SASL{Mechanism: ScramSHA512, User: "relay", Password: "hunter2"}}
	readable := Security{SASL: &SASL{Mechanism: Plain, User: "relay", Password: "hunter2"}}
	certified := Security{TLS: &tls.Config{Certificates: []tls.Certificate{{Leaf: &x509.Certificate{Subject: pkix.Name{CommonName: "relay"}}}}}}
	alert := &net.OpError{Op: "remote error", Err: errors.New("tls: bad certificate")}
	unverified := func(err error) error { return &tls.CertificateVerificationError{Err: err} }
	for _, row := range []struct {
		err      error
		security Security
		want     string
	}{
		{fmt.Errorf("sasl: %w", kafka.SASLAuthenticationFailed), user,
			`the broker rejects user "relay" with SCRAM-SHA-512; check the password, and that the user has credentials for this mechanism`},
		{kafka.UnsupportedSASLMechanism, readable,
			"the broker does not accept SASL PLAIN on this listener; set ORDERCLOSE_KAFKA_SASL_MECHANISM to one that its listener has enabled"},
		{kafka.IllegalSASLState, user,
			"this listener of the broker does not accept SASL; use the port of its SASL listener, or unset ORDERCLOSE_KAFKA_SASL_MECHANISM"},
		{unverified(x509.UnknownAuthorityError{}), user,
			"the broker's certificate is signed by an unknown authority; set ORDERCLOSE_KAFKA_TLS_CA_FILE to the file with the authority's certificate (in Go: RootCAs of the tls.Config)"},
		{unverified(x509.HostnameError{Certificate: &x509.Certificate{}, Host: "kafka-1"}), user,
			"the broker's certificate is for another host name; use the broker host names of the certificates, in ORDERCLOSE_KAFKA_BROKERS and in the brokers' advertised.listeners"},
		{unverified(x509.CertificateInvalidError{Reason: x509.Expired}), user,
			"the broker's certificate is not valid; renew it on the broker, or fix the clock of this machine"},
		{tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}, user,
			"this listener of the broker does not use TLS; use the port of its TLS listener"},
		{alert, user,
			"the broker ended the TLS handshake; it may require a client certificate; set ORDERCLOSE_KAFKA_TLS_CERT_FILE and ORDERCLOSE_KAFKA_TLS_KEY_FILE (in Go: Certificates of the tls.Config)"},
		{alert, certified,
			`the broker rejects the client with certificate "CN=relay"; have the certificate signed by an authority that the broker trusts, and check that it has not expired`},
		{io.ErrUnexpectedEOF, Security{},
			"the broker closed a connection without TLS and SASL; use the port of a listener that accepts such connections, or set ORDERCLOSE_KAFKA_TLS=on or ORDERCLOSE_KAFKA_SASL_MECHANISM"},
		{io.EOF, readable,
			"the broker closed a connection without TLS and with SASL; use the port of a listener that accepts such connections, or set ORDERCLOSE_KAFKA_TLS=on"},
		{&net.OpError{Op: "read", Err: syscall.ECONNRESET}, certified,
			`the broker closed a connection with TLS and certificate "CN=relay", and without SASL; use the port of a listener that accepts such connections, or set ORDERCLOSE_KAFKA_SASL_MECHANISM`},
		{io.EOF, user,
			"the broker closed a connection with TLS and SASL; use the port of a listener that accepts such connections, or set ORDERCLOSE_KAFKA_TLS=off"},
	} {
		got := explainConnection(row.err, row.security, true)
		if want := fmt.Sprintf("%s: %v", row.want, row.err); got.Error() != want {
			t.Errorf("-want +got:\n%s", cmp.Diff(want, got.Error()))
		}
		if !errors.Is(got, row.err) && !errors.As(got, new(tls.RecordHeaderError)) {
			t.Errorf("%v does not unwrap to its cause", got)
		}
		if again := explainConnection(fmt.Errorf("ping: %w", got), row.security, true); again.Error() != "ping: "+got.Error() {
			t.Errorf("explained twice: %v", again)
		}
	}
}

func TestExplainConnection_ReturnsOtherErrorsUnchanged(t *testing.T) {
	for _, err := range []error{
		nil, context.DeadlineExceeded, kafka.NotLeaderForPartition,
		&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, protocol.NewErrNoTopic("x"),
	} {
		if got := explainConnection(err, Security{}, true); !errors.Is(got, err) || got != nil && got.Error() != err.Error() {
			t.Errorf("%v is explained as %v", err, got)
		}
	}
	if got := explainConnection(io.EOF, Security{}, false); got != io.EOF {
		t.Errorf("a connection that breaks after the broker has answered is explained as %v", got)
	}
}

func TestNeededACL(t *testing.T) {
	const topic, group, cluster = kafka.TopicAuthorizationFailed, kafka.GroupAuthorizationFailed, kafka.ClusterAuthorizationFailed
	for _, row := range []struct {
		request protocol.ApiKey
		code    kafka.Error
		want    string
	}{
		{protocol.Produce, topic, "Write on Topic x"},
		{protocol.InitProducerId, cluster, "Write on Topic (any)"},
		{protocol.Fetch, topic, "Read on Topic x"},
		{protocol.ListOffsets, topic, "Describe on Topic x"},
		{protocol.Metadata, topic, "Describe on Topic x"},
		{protocol.OffsetCommit, topic, "Read on Topic x"},
		{protocol.OffsetCommit, group, "Read on Group x"},
		{protocol.JoinGroup, group, "Read on Group x"},
		{protocol.OffsetFetch, topic, "Describe on Topic x"},
		{protocol.OffsetFetch, group, "Describe on Group x"},
		{protocol.FindCoordinator, group, "Describe on Group x"},
		{protocol.DescribeConfigs, topic, "DescribeConfigs on Topic x"},
		{protocol.IncrementalAlterConfigs, topic, "AlterConfigs on Topic x"},
		{protocol.CreateTopics, topic, "Create on Topic x"},
		{protocol.CreatePartitions, topic, "Alter on Topic x"},
		{protocol.DeleteTopics, topic, "Delete on Topic x"},
		{protocol.DeleteGroups, group, "Delete on Group x"},
	} {
		a, ok := neededACL(row.request, row.code)
		if a.resource != anyTopic {
			a.name = "x"
		}
		if !ok || a.String() != row.want {
			t.Errorf("%v refused by %v lacks %v (%v), want %s", row.request, row.code, a, ok, row.want)
		}
	}
	if a, ok := neededACL(protocol.Produce, kafka.NotLeaderForPartition); ok {
		t.Errorf("the error %v needs %v", kafka.NotLeaderForPartition, a)
	}
}

func TestRefusals_NameEveryResourceOnce(t *testing.T) {
	who := func() string { return `user "x"` }
	var r missingACLs
	eachErrorCode(nil, &describeconfigs.Response{Resources: []describeconfigs.ResponseResource{
		{ErrorCode: 29, ResourceName: "b"}, {ErrorCode: 29, ResourceName: "a"}, {ErrorCode: 29, ResourceName: "b"}, {ErrorCode: 0, ResourceName: "c"},
	}}, r.observe)
	err := r.explain(protocol.DescribeConfigs, "", who)
	want := `user "x" lacks the ACL DescribeConfigs on Topic a, b; grant it (AlterConfigs includes it); docs/security.md lists what each part needs: ` + kafka.TopicAuthorizationFailed.Error()
	if err == nil || err.Error() != want || !errors.Is(err, kafka.TopicAuthorizationFailed) {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

func TestRefusals_NameTheGroupOrTheTopic(t *testing.T) {
	for code, want := range map[int16]string{29: "Read on Topic order-close", 30: "Read on Group closers"} {
		var r missingACLs
		req := &offsetcommit.Request{GroupID: "closers"}
		eachErrorCode(req, &offsetcommit.Response{Topics: []offsetcommit.ResponseTopic{
			{Name: "order-close", Partitions: []offsetcommit.ResponsePartition{{ErrorCode: code}}},
		}}, r.observe)
		err := r.explain(protocol.OffsetCommit, groupOf(req), func() string { return "x" })
		if err == nil || !strings.Contains(err.Error(), "x lacks the ACL "+want+";") {
			t.Errorf("code %d: %v, want %s", code, err, want)
		}
	}
}

func TestRefusals_IgnoreOtherCodes(t *testing.T) {
	var r missingACLs
	eachErrorCode(&message{Request: &kmsg.FetchRequest{Topics: []kmsg.FetchRequestTopic{{Partitions: make([]kmsg.FetchRequestTopicPartition, 1)}}}}, messageAnswer{&kmsg.FetchResponse{ErrorCode: int16(kafka.OffsetOutOfRange)}}, r.observe)
	if err := r.explain(protocol.Fetch, "", func() string { return "x" }); err != nil {
		t.Error(err)
	}
}
