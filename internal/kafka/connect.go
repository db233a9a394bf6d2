package kafka

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/apiversions"
	"github.com/segmentio/kafka-go/protocol/saslauthenticate"
	"github.com/segmentio/kafka-go/protocol/saslhandshake"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// connector opens every connection of a Cluster. Every connection that a connector returns has answered a request.
type connector struct {
	lifetime  context.Context                                                      // of the Cluster
	dial      func(ctx context.Context, network, address string) (net.Conn, error) // opens a TCP connection
	clientID  string
	formatter *kmsg.RequestFormatter  // has the client id, too
	member    *atomic.Pointer[string] // the client id of group members
	tls       *tls.Config
	mechanism string    // of SASL
	start     startSASL // nil: no SASL
	log       *slog.Logger
}

// conn is an encrypted and authenticated connection to a broker. It has one request in flight at a time.
type conn struct {
	*protocol.Conn
	raw      net.Conn // below TLS
	by       *connector
	broker   *brokerConns
	versions map[protocol.ApiKey]int16 // the version of each request of the client library that the broker accepts
	offered  map[protocol.ApiKey]int16 // the highest version of each request that the broker accepts
	renewAt  time.Time                 // when the next request authenticates again first; zero: never
	used     int64                     // when the last request ended; see sinceStart
	out      []byte                    // memory for requests of package kmsg
	muted    time.Duration             // for how long the broker reads no request after its last answer
}

// Close closes the connection at once. TLS would write to the broker first, and wait if it hangs.
func (c *conn) Close() error { return c.raw.Close() }

// open opens a connection to a broker. Each answer has requestTimeout: six with TLS 1.2 and SCRAM. The error names the broker and the
// step. A broker that does not answer in time is logged here, because a caller with a shorter deadline reports only its own one.
func (c *connector) open(to *brokerConns) (*conn, error) {
	step := "TCP"
	limited, cancel := context.WithTimeout(c.lifetime, requestTimeout)
	raw, err := c.dial(limited, "tcp", to.address)
	cancel()
	if err == nil {
		stop := context.AfterFunc(c.lifetime, func() { raw.Close() })
		var ready *conn
		if ready, err = c.handshake(heardConn{raw, to}, to, &step); err == nil && stop() {
			return ready, nil
		}
		raw.Close()
	}
	if c.lifetime.Err() == nil && (errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded)) {
		c.log.Warn("broker does not answer a new connection", "broker", to.address, "step", step, "err", err)
	}
	return nil, fmt.Errorf("connection to Kafka broker %s: %s: %w", to.address, step, cmp.Or(err, net.ErrClosed))
}

// begin prepares a connection for a request that makes the broker wait. It logs in again if that is due.
func (c *conn) begin(wait time.Duration) error {
	if !c.renewAt.IsZero() && time.Now().After(c.renewAt) {
		if err := c.logIn(); err != nil {
			return err
		}
	}
	c.awaits(wait)
	return nil
}

// awaits gives the broker requestTimeout for its next answer, and the time for which the request makes it wait.
func (c *conn) awaits(wait time.Duration) {
	c.raw.SetDeadline(time.Now().Add(requestTimeout + wait)) //mutant:connect-no-deadline
}

// handshake prepares a new TCP connection: TLS, the first request, and SASL. It sets step to the present step.
func (c *connector) handshake(raw net.Conn, to *brokerConns, step *string) (*conn, error) {
	ready := &conn{raw: raw, by: c, broker: to}
	if c.tls != nil {
		*step = "TLS handshake"
		config := c.tls
		if config.ServerName == "" {
			host, _, err := net.SplitHostPort(to.address)
			if err != nil {
				return nil, err
			}
			config = config.Clone()
			config.ServerName = host
		}
		secured := tls.Client(raw, config)
		ready.awaits(requestTimeout) // TLS 1.2 has two answers
		if err := secured.HandshakeContext(c.lifetime); err != nil {
			return nil, err
		}
		raw = secured
	}
	*step = "first request"
	ready.Conn = protocol.NewConn(raw, c.clientID)
	if err := ready.agreeOnVersions(); err != nil || c.start == nil {
		return ready, err
	}
	*step = "SASL handshake"
	return ready, ready.logIn()
}

// latestCorrect has the last version that the client library encodes and decodes correctly, for
// requests of which it knows later versions too.
var latestCorrect = map[protocol.ApiKey]int16{protocol.JoinGroup: 5, protocol.SyncGroup: 3, protocol.LeaveGroup: 0}

// errOldBroker means that a broker compares no topic ids in a fetch.
var errOldBroker = errors.New("the broker is older than Kafka 3.1, which is required")

// agreeOnVersions asks the broker for the versions of each request that it accepts, and chooses one for each.
func (c *conn) agreeOnVersions() error {
	c.awaits(0)
	answer, err := c.RoundTrip(&apiversions.Request{})
	if err != nil {
		return err
	}
	offered := answer.(*apiversions.Response)
	if offered.ErrorCode != 0 {
		return kafka.Error(offered.ErrorCode)
	}
	c.versions, c.offered = map[protocol.ApiKey]int16{}, map[protocol.ApiKey]int16{}
	for _, k := range offered.ApiKeys {
		key := protocol.ApiKey(k.ApiKey)
		c.offered[key] = k.MaxVersion
		version := key.SelectVersion(k.MinVersion, k.MaxVersion)
		if latest, ok := latestCorrect[key]; ok {
			version = min(version, latest)
		}
		if version >= k.MinVersion { // otherwise the broker has given up what the client library knows
			c.versions[key] = version
		}
	}
	c.SetVersions(c.versions)
	if c.offered[protocol.Fetch] < fetchByID { //mutant:old-broker-used
		return errOldBroker
	}
	return nil
}

// logIn authenticates by SASL, and sets when that must be done again. The broker may have set connections.max.reauth.ms, and closes
// the connection at the first request after the session's end. So the first request in the last quarter of the session, or after
// its end, logs in again (KIP-368).
//
// A mechanism that has no credentials now fails before anything is sent.
func (c *conn) logIn() error {
	ctx, cancel := context.WithTimeout(c.by.lifetime, requestTimeout) // of the provider of tokens
	defer cancel()
	host, _, err := net.SplitHostPort(c.broker.address)
	if err != nil {
		return err
	}
	steps, message, err := c.by.start(sasl.WithMetadata(ctx, &sasl.Metadata{Host: host}))
	if err != nil {
		return err
	}
	c.awaits(0)
	answer, err := c.RoundTrip(&saslhandshake.Request{Mechanism: c.by.mechanism})
	if err != nil {
		return err
	}
	if code := answer.(*saslhandshake.Response).ErrorCode; code != 0 {
		return kafka.Error(code)
	}
	c.renewAt = time.Time{}
	for done := false; err == nil && !done; {
		c.awaits(0)
		answer, err = c.RoundTrip(&saslauthenticate.Request{AuthBytes: message})
		if errors.Is(err, io.EOF) { // so old brokers reject credentials
			return kafka.SASLAuthenticationFailed
		}
		if err != nil {
			return err
		}
		res := answer.(*saslauthenticate.Response)
		if res.ErrorCode != 0 {
			return fmt.Errorf("%w: %s", kafka.Error(res.ErrorCode), res.ErrorMessage)
		}
		if session := time.Duration(res.SessionLifetimeMs) * time.Millisecond; session > 0 {
			c.renewAt = time.Now().Add(session * 3 / 4) //mutant:session-not-renewed
		}
		done, message, err = steps.Next(ctx, res.AuthBytes)
	}
	return err
}
