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
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/tlsfault"
	"github.com/orderclose/orderclose/internal/wire"
)

func TestExplainConnection_SaysWhatFailedAndWhatToDo(t *testing.T) {
	user := Security{TLS: &tls.Config{}, SASL: &SASL{Mechanism: ScramSHA512, User: "relay", Password: "hunter2"}}
	readable := Security{SASL: &SASL{Mechanism: Plain, User: "relay", Password: "hunter2"}}
	certified := Security{TLS: &tls.Config{Certificates: []tls.Certificate{{Leaf: &x509.Certificate{Subject: pkix.Name{CommonName: "relay"}}}}}}
	alert := &net.OpError{Op: "remote error", Err: errors.New("tls: bad certificate")}
	const failed, other = "TLS to the broker failed; " + tlsfault.Do,
		"use the port of a listener that accepts such connections, or other settings of docs/security.md"
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
		{unverified(x509.UnknownAuthorityError{}), user, failed},
		{tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}, user, failed},
		{alert, certified, failed},
		{io.ErrUnexpectedEOF, Security{}, "the broker closed a connection (not encrypted); " + other},
		{io.EOF, readable, `the broker closed a connection (not encrypted, SASL PLAIN as user "relay"); ` + other},
		{&net.OpError{Op: "read", Err: syscall.ECONNRESET}, certified,
			"the broker closed a connection (mutual TLS); " + other},
		{io.EOF, user, `the broker closed a connection (TLS, SASL SCRAM-SHA-512 as user "relay"); ` + other},
	} {
		got := explainConnection(row.err, row.security, true)
		if want := fmt.Sprintf("%s: %v", row.want, row.err); got.Error() != want {
			t.Errorf("-want +got:\n%s", cmp.Diff(want, got.Error()))
		}
		expect.That(t, errors.Is(got, row.err) || errors.As(got, new(tls.RecordHeaderError)), "%v does not unwrap to its cause", got)
		_, answered := errors.AsType[kafka.Error](row.err) // an alert of TLS may come in place of the answer to an append that was written
		expect.That(t, notWritten(got) == answered, "answered %v, but an append counts as not written: %v: %v", answered, !answered, got)
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

// transportOf returns the transport of a client with the user x, which opens no connection.
func transportOf(t *testing.T) *transport {
	c := must.Get(New(Options{Brokers: []string{"a:1"}, Security: Security{SASL: &SASL{Mechanism: ScramSHA512, User: "x", Password: "hunter2"}},
		Logger: slog.New(slog.DiscardHandler)}))(t)
	t.Cleanup(c.Close)
	return c.transport
}

func TestHidden_NamesEveryTopicOnce(t *testing.T) {
	err := transportOf(t).hidden(protocol.DescribeConfigs, []string{"b", "a", "b"})
	want := `user "x" lacks the ACL DescribeConfigs on Topic a, b; grant it (AlterConfigs includes it); docs/security.md lists what each part needs: ` +
		kafka.TopicAuthorizationFailed.Error()
	expect.That(t, err != nil && err.Error() == want && errors.Is(err, kafka.TopicAuthorizationFailed), "got  %v\nwant %s", err, want)
}

func TestJudge_ReturnsOtherErrorsUnchanged(t *testing.T) {
	to := transportOf(t)
	for _, err := range []error{kafka.OffsetOutOfRange, kafka.NotLeaderForPartition, io.EOF, nil} {
		expect.Equal(t, to.judge(about{request: protocol.Fetch}, err), err, "the error")
	}
	expect.NoError(t, to.judge(about{request: protocol.Fetch}, kafka.Error(0)))
}

// TestCluster_ExplainsEveryRefusal: whichever request is refused, the error names the access that is missing.
func TestCluster_ExplainsEveryRefusal(t *testing.T) {
	const topic, group, cluster = int16(kafka.TopicAuthorizationFailed), int16(kafka.GroupAuthorizationFailed), int16(kafka.ClusterAuthorizationFailed)
	member := func(c *Cluster) *membership {
		return &membership{cluster: c, group: "g", topic: "t", log: slog.New(slog.DiscardHandler)}
	}
	change := func(by Change) func(context.Context, *Cluster) error {
		return func(ctx context.Context, c *Cluster) error {
			return c.change(ctx, TopicSpec{Name: "t", Partitions: 1}, by)
		}
	}
	for _, row := range []struct {
		code int16
		want string
		call func(context.Context, *Cluster) error
		// answers are what brokers answer, refused or not.
		answers []kmsg.Response
	}{
		{topic, "Write on Topic t", func(ctx context.Context, c *Cluster) error {
			return expect.Err(c.Append(ctx, "t", 0, []wire.Message{{Key: []byte("k")}}))
		}, []kmsg.Response{&kmsg.ProduceResponse{Topics: []kmsg.ProduceResponseTopic{{Topic: "t",
			Partitions: []kmsg.ProduceResponseTopicPartition{{ErrorCode: topic}}}}}}},
		{topic, "Read on Topic t", func(ctx context.Context, c *Cluster) error {
			return expect.Err(c.Read(ctx, wire.Position{Topic: "t"}))
		}, []kmsg.Response{&kmsg.FetchResponse{Topics: []kmsg.FetchResponseTopic{{Topic: "t", Partitions: []kmsg.FetchResponseTopicPartition{{ErrorCode: topic}}}}}}},
		{topic, "Describe on Topic t", func(ctx context.Context, c *Cluster) error {
			return expect.Err(c.OffsetAt(ctx, "t", 0, time.Now()))
		}, []kmsg.Response{&kmsg.ListOffsetsResponse{Topics: []kmsg.ListOffsetsResponseTopic{{Topic: "t",
			Partitions: []kmsg.ListOffsetsResponseTopicPartition{{ErrorCode: topic}}}}}}},
		{topic, "Read on Topic t", func(ctx context.Context, c *Cluster) error {
			return c.SetPosition(ctx, "g", "t", 0, 5)
		}, []kmsg.Response{&kmsg.OffsetCommitResponse{Topics: []kmsg.OffsetCommitResponseTopic{{Topic: "t",
			Partitions: []kmsg.OffsetCommitResponseTopicPartition{{ErrorCode: topic}}}}}}},
		{topic, "Describe on Topic t", func(ctx context.Context, c *Cluster) error {
			return expect.Err(c.Commits(ctx, "g", "t", 1))
		}, []kmsg.Response{&kmsg.OffsetFetchResponse{Topics: []kmsg.OffsetFetchResponseTopic{{Topic: "t",
			Partitions: []kmsg.OffsetFetchResponseTopicPartition{{ErrorCode: topic}}}}}}},
		{group, "Describe on Group g", func(ctx context.Context, c *Cluster) error {
			return expect.Err(c.Commits(ctx, "g", "t", 1))
		}, []kmsg.Response{&kmsg.OffsetFetchResponse{ErrorCode: group}}},
		{group, "Read on Group g", func(ctx context.Context, c *Cluster) error {
			return expect.Err(member(c).join(ctx))
		}, []kmsg.Response{&kmsg.JoinGroupResponse{ErrorCode: group}}},
		{group, "Read on Group g", func(ctx context.Context, c *Cluster) error {
			return expect.Err(member(c).join(ctx))
		}, []kmsg.Response{&kmsg.JoinGroupResponse{MemberID: "m", LeaderID: "other"}, &kmsg.SyncGroupResponse{ErrorCode: group}}},
		{group, "Read on Group g", func(ctx context.Context, c *Cluster) error {
			return (&generation{membership: member(c)}).heartbeat(ctx)
		}, []kmsg.Response{&kmsg.HeartbeatResponse{ErrorCode: group}}},
		{group, "Describe on Group g", func(ctx context.Context, c *Cluster) error {
			return expect.Err(c.Group(ctx, "g", "t"))
		}, []kmsg.Response{&kmsg.DescribeGroupsResponse{Groups: []kmsg.DescribeGroupsResponseGroup{{Group: "g", ErrorCode: group}}}}},
		{cluster, "Write on Topic (any)", func(ctx context.Context, c *Cluster) error {
			return (&idempotentProducer{cluster: c, id: -1}).init(ctx)
		}, []kmsg.Response{&kmsg.InitProducerIDResponse{ErrorCode: cluster}}},
		{topic, "DescribeConfigs on Topic t", func(ctx context.Context, c *Cluster) error {
			return expect.Err(c.Topics(ctx, "t"))
		}, []kmsg.Response{&kmsg.DescribeConfigsResponse{Resources: []kmsg.DescribeConfigsResponseResource{{ResourceName: "t", ErrorCode: topic}}}}},
		{topic, "Create on Topic t", change(Change{Create: true}),
			[]kmsg.Response{&kmsg.CreateTopicsResponse{Topics: []kmsg.CreateTopicsResponseTopic{{Topic: "t", ErrorCode: topic}}}}},
		{topic, "Alter on Topic t", change(Change{Partitions: 2}),
			[]kmsg.Response{&kmsg.CreatePartitionsResponse{Topics: []kmsg.CreatePartitionsResponseTopic{{Topic: "t", ErrorCode: topic}}}}},
		{topic, "AlterConfigs on Topic t", change(Change{Key: "k"}),
			[]kmsg.Response{&kmsg.IncrementalAlterConfigsResponse{Resources: []kmsg.IncrementalAlterConfigsResponseResource{{ResourceName: "t", ErrorCode: topic}}}}},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newBroker(t, kfake.SeedTopics(1, "t"))
			for _, answer := range row.answers {
				b.ControlKey(answer.Key(), func(req kmsg.Request) (kmsg.Response, error, bool) {
					answer.SetVersion(req.GetVersion())
					if f, ok := answer.(*kmsg.FetchResponse); ok {
						f.Topics[0].TopicID = req.(*kmsg.FetchRequest).Topics[0].TopicID
					}
					return answer, nil, true
				})
			}
			err := row.call(t.Context(), b.cluster(Options{}))
			var access *AccessError
			expect.That(t, errors.As(err, &access) && strings.Contains(access.What, "lacks the ACL "+row.want) && errors.Is(err, kafka.Error(row.code)),
				"%s refuses %s: %v", kmsg.NameForKey(row.answers[len(row.answers)-1].Key()), row.want, err)
		})
	}
}

func TestNew_RejectsInvalidSASL(t *testing.T) {
	for _, row := range []struct {
		sasl SASL
		want string
	}{
		{SASL{Mechanism: "GSSAPI", User: "u", Password: "hunter2"}, `kafka: unknown SASL mechanism "GSSAPI": use one of SCRAM-SHA-512, SCRAM-SHA-256, PLAIN, ` +
			`OAUTHBEARER`},
		{SASL{Mechanism: Plain, User: "", Password: "hunter2"}, "kafka: SASL PLAIN needs a user"},
		{SASL{Mechanism: ScramSHA512, User: "u", Password: ""}, `kafka: SASL SCRAM-SHA-512 needs the password of user "u"`},
		{SASL{Mechanism: OAuthBearer, User: "u"}, "kafka: SASL OAUTHBEARER needs a source of tokens"},
		{SASL{Mechanism: Plain, User: "u", Password: "hunter2", Token: noToken}, "kafka: SASL PLAIN sends no token and no extensions: only OAUTHBEARER does"},
		{SASL{Mechanism: OAuthBearer, Token: noToken, Extensions: map[string]string{"auth": "hunter2"}},
			`kafka: SASL extension "auth": a name has letters only and is not auth, and a value has printable ASCII letters`},
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

// TestSecurity_AppliesToEveryConnection: requests and group memberships open their connections through the connector, which has the security.
func TestSecurity_AppliesToEveryConnection(t *testing.T) {
	c, err := New(Options{Brokers: []string{"a:1"}, Security: Security{TLS: &tls.Config{}, SASL: &SASL{Mechanism: ScramSHA512, User: "u", Password: "hunter2"}}})
	must.Do(t, err)
	expect.That(t, c.transport.brokers.tls != nil && c.transport.brokers.start != nil && c.transport.brokers.mechanism == ScramSHA512,
		"connections are not secured")
	expect.That(t, c.client.Transport == c.transport, "the client library opens connections itself")
}

// TestSecurity_NoVerbShowsTheToken prints a client that keeps a token.
func TestSecurity_NoVerbShowsTheToken(t *testing.T) {
	c, err := New(Options{Brokers: []string{"a:1"}, Security: Security{SASL: &SASL{Mechanism: OAuthBearer,
		Token: func(context.Context) (string, time.Time, error) {
			return "hunter2", time.Now().Add(time.Hour), nil
		}}}})
	must.Do(t, err)
	if _, message, err := c.transport.brokers.start(t.Context()); err != nil || !strings.Contains(string(message), "hunter2") {
		t.Fatalf("the login sends %q, %v", message, err)
	}
	for _, v := range []any{c, c.transport, c.transport.brokers, c.transport.brokers.start} {
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
