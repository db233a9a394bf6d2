package kafka

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/describeconfigs"
	"github.com/segmentio/kafka-go/protocol/offsetcommit"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
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
			"the broker closed a connection without TLS and SASL; use the port of a listener that accepts such connections, or set ORDERCLOSE_KAFKA_TLS_CA_FILE or ORDERCLOSE_KAFKA_SASL_MECHANISM"},
		{io.EOF, readable,
			"the broker closed a connection without TLS and with SASL; use the port of a listener that accepts such connections, or set ORDERCLOSE_KAFKA_TLS_CA_FILE"},
		{&net.OpError{Op: "read", Err: syscall.ECONNRESET}, certified,
			`the broker closed a connection with TLS and certificate "CN=relay", and without SASL; use the port of a listener that accepts such connections, or set ORDERCLOSE_KAFKA_SASL_MECHANISM`},
		{io.EOF, user,
			"the broker closed a connection with TLS and SASL; use the port of a listener that accepts such connections, or unset ORDERCLOSE_KAFKA_TLS_CA_FILE"},
	} {
		got := explainConnection(row.err, row.security, true)
		if want := fmt.Sprintf("%s: %v", row.want, row.err); got.Error() != want {
			t.Errorf("-want +got:\n%s", cmp.Diff(want, got.Error()))
		}
		expect.That(t, errors.Is(got, row.err) || errors.As(got, new(tls.RecordHeaderError)), "%v does not unwrap to its cause", got)
		again := explainConnection(fmt.Errorf("ping: %w", got), row.security, true)
		expect.That(t, again.Error() == "ping: "+got.Error(), "explained twice: %v", again)
	}
}

func TestExplainConnection_ReturnsOtherErrorsUnchanged(t *testing.T) {
	for _, err := range []error{
		nil, context.DeadlineExceeded, kafka.NotLeaderForPartition,
		&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, protocol.NewErrNoTopic("x"),
	} {
		got := explainConnection(err, Security{}, true)
		expect.That(t, errors.Is(got, err) && (got == nil || got.Error() == err.Error()), "%v is explained as %v", err, got)
	}
	expect.Equal(t, explainConnection(io.EOF, Security{}, false), io.EOF, "the explanation of a connection that breaks after the broker has answered")
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
		expect.That(t, ok && a.String() == row.want, "%v refused by %v lacks %v (%v), want %s", row.request, row.code, a, ok, row.want)
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
	expect.That(t, err != nil && err.Error() == want && errors.Is(err, kafka.TopicAuthorizationFailed), "got  %v\nwant %s", err, want)
}

func TestRefusals_NameTheGroupOrTheTopic(t *testing.T) {
	for code, want := range map[int16]string{29: "Read on Topic order-close", 30: "Read on Group closers"} {
		var r missingACLs
		req := &offsetcommit.Request{GroupID: "closers"}
		eachErrorCode(req, &offsetcommit.Response{Topics: []offsetcommit.ResponseTopic{
			{Name: "order-close", Partitions: []offsetcommit.ResponsePartition{{ErrorCode: code}}},
		}}, r.observe)
		err := r.explain(protocol.OffsetCommit, groupOf(req), func() string { return "x" })
		expect.That(t, err != nil && strings.Contains(err.Error(), "x lacks the ACL "+want+";"), "code %d: %v, want %s", code, err, want)
	}
}

func TestRefusals_IgnoreOtherCodes(t *testing.T) {
	var r missingACLs
	eachErrorCode(&message{Request: &kmsg.FetchRequest{Topics: []kmsg.FetchRequestTopic{{Partitions: make([]kmsg.FetchRequestTopicPartition, 1)}}}}, messageAnswer{&kmsg.FetchResponse{ErrorCode: int16(kafka.OffsetOutOfRange)}}, r.observe)
	expect.NoError(t, r.explain(protocol.Fetch, "", func() string { return "x" }))
}

func TestNew_RejectsInvalidSASL(t *testing.T) {
	for _, row := range []struct {
		sasl SASL
		want string
	}{
		{SASL{Mechanism: "GSSAPI", User: "u", Password: "hunter2"}, `kafka: unknown SASL mechanism "GSSAPI": use one of SCRAM-SHA-512, SCRAM-SHA-256, PLAIN, OAUTHBEARER, AWS_MSK_IAM`},
		{SASL{Mechanism: Plain, User: "", Password: "hunter2"}, "kafka: SASL PLAIN needs a user"},
		{SASL{Mechanism: ScramSHA512, User: "u", Password: ""}, `kafka: SASL SCRAM-SHA-512 needs the password of user "u"`},
		{SASL{Mechanism: OAuthBearer, User: "u"}, "kafka: SASL OAUTHBEARER needs a source of tokens"},
		{SASL{Mechanism: Plain, User: "u", Password: "hunter2", Token: noToken}, "kafka: SASL PLAIN sends no token and no extensions: only OAUTHBEARER does"},
		{SASL{Mechanism: OAuthBearer, Token: noToken, Extensions: map[string]string{"auth": "hunter2"}},
			`kafka: SASL extension "auth": a name has letters only and is not auth, and a value has printable ASCII letters`},
		{SASL{Mechanism: MSKIAM, Password: "hunter2"}, "kafka: SASL AWS_MSK_IAM has no user and no password: the environment names the credentials of AWS"},
		{SASL{Mechanism: ScramSHA256, User: "u", Password: "hunter2\a"}, "kafka: user or password have characters that SASL does not allow (RFC 4013)"},
	} {
		_, err := New(Options{Brokers: []string{"a:1"}, Security: Security{SASL: &row.sasl}})
		expect.That(t, err != nil && err.Error() == row.want, "got  %v\nwant %s", err, row.want)
	}
}

func noToken(context.Context) (string, time.Time, error) { return "", time.Time{}, nil }

func TestNew_WarnsAboutSASLWithoutTLS(t *testing.T) {
	for _, row := range []struct {
		security Security
		want     string
	}{
		{Security{}, ""},
		{Security{TLS: &tls.Config{}, SASL: &SASL{Mechanism: Plain, User: "u", Password: "hunter2"}}, ""},
		{Security{SASL: &SASL{Mechanism: Plain, User: "u", Password: "hunter2"}}, "sends the password in clear text"},
		{Security{SASL: &SASL{Mechanism: ScramSHA256, User: "u", Password: "hunter2"}}, "SASL without TLS"},
		{Security{SASL: &SASL{Mechanism: OAuthBearer, Token: noToken}}, "sends the token in clear text"},
	} {
		var log bytes.Buffer
		must.Get(New(Options{Brokers: []string{"a:1"}, Security: row.security, Logger: slog.New(slog.NewTextHandler(&log, nil))}))(t)
		if !strings.Contains(log.String(), row.want) || row.want == "" && log.Len() > 0 || strings.Contains(log.String(), "hunter2") {
			t.Errorf("%v logs %q, want %q in it", row.security, log.String(), row.want)
		}
	}
}

// TestSecurity_AppliesToEveryConnection: requests and group memberships open their
// connections through the connector, which has the security.
func TestSecurity_AppliesToEveryConnection(t *testing.T) {
	c, err := New(Options{Brokers: []string{"a:1"}, Security: Security{TLS: &tls.Config{}, SASL: &SASL{Mechanism: ScramSHA512, User: "u", Password: "hunter2"}}})
	must.Do(t, err)
	expect.That(t, c.transport.brokers.tls != nil && c.transport.brokers.mechanism != nil && c.transport.brokers.mechanism.Name() == ScramSHA512,
		"connections are not secured")
	expect.That(t, c.client.Transport == c.transport, "the client library opens connections itself")
}

// TestSecurity_NoVerbShowsTheToken prints a client that keeps a token.
func TestSecurity_NoVerbShowsTheToken(t *testing.T) {
	c, err := New(Options{Brokers: []string{"a:1"}, Security: Security{SASL: &SASL{Mechanism: OAuthBearer, Token: func(context.Context) (string, time.Time, error) {
		return "hunter2", time.Now().Add(time.Hour), nil
	}}}})
	must.Do(t, err)
	if _, message, err := c.transport.brokers.mechanism.Start(t.Context()); err != nil || !strings.Contains(string(message), "hunter2") {
		t.Fatalf("the login sends %q, %v", message, err)
	}
	for _, v := range []any{c, c.transport, c.transport.brokers, c.transport.brokers.mechanism} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
			expect.That(t, !strings.Contains(fmt.Sprintf(verb, v), "hunter2"), "%s of %T shows the token: %s", verb, v, fmt.Sprintf(verb, v))
		}
	}
}

func TestSecurity_NoVerbShowsThePassword(t *testing.T) {
	for _, mechanism := range []string{ScramSHA512, ScramSHA256, Plain} {
		o := Options{Brokers: []string{"a:1"}, Security: Security{SASL: &SASL{Mechanism: mechanism, User: "shown", Password: "hunter2"}}}
		c := must.Get(New(o))(t)
		for _, v := range []any{o, &o, o.Security, &o.Security, o.Security.SASL, *o.Security.SASL, c, c.transport, c.transport.brokers} {
			for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x"} {
				text := fmt.Sprintf(verb, v)
				expect.That(t, !strings.Contains(text, "hunter2") && !strings.Contains(text, fmt.Sprintf("%x", "hunter2")),
					"%s of %T shows the password: %s", verb, v, text)
			}
		}
		var log bytes.Buffer
		slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "security", o.Security, "sasl", o.Security.SASL)
		marshaled := must.Get(json.Marshal(o.Security))(t)
		if text := log.String() + string(marshaled); strings.Contains(text, "hunter2") || !strings.Contains(text, "shown") {
			t.Errorf("logged as %s", text)
		}
	}
}
