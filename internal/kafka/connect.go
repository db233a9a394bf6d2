package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/apiversions"
	metadataAPI "github.com/segmentio/kafka-go/protocol/metadata"
	"github.com/segmentio/kafka-go/protocol/saslauthenticate"
	"github.com/segmentio/kafka-go/protocol/saslhandshake"
	"github.com/segmentio/kafka-go/sasl"
)

const (
	// connectTimeout bounds the opening of one connection: TCP, TLS, the first request
	// and SASL together.
	connectTimeout = requestTimeout
	// connectTries bounds how many brokers are tried for a connection to any broker.
	connectTries = 3
	// anyBroker is the address by which the client library asks for a connection to any
	// broker. This name is neither resolved nor dialled.
	anyBroker = "any-broker:9092"
)

// dialFunc opens a TCP connection.
type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// connector opens every connection of a Cluster. The client library could do this itself,
// but its SASL handshake has no deadline, and it tries another broker only if the first one
// refuses TCP. Every connection that a connector returns has answered a request.
type connector struct {
	brokers   []string // host:port, from Options
	clientID  string
	tls       *tls.Config
	mechanism sasl.Mechanism // nil: no SASL
	log       *slog.Logger
	next      atomic.Uint64            // all()[next % len] is tried first
	reported  atomic.Pointer[[]string] // the brokers in the cluster's last answer; nil: none yet
	peers     peers
}

func newConnector(o Options, mechanism sasl.Mechanism) *connector {
	c := &connector{brokers: o.Brokers, clientID: o.ClientID, tls: o.Security.TLS, mechanism: mechanism, log: o.Logger}
	c.next.Store(rand.Uint64N(uint64(len(o.Brokers))))
	return c
}

// all returns the brokers to try: those of Options, and those that the cluster has
// reported. A process may run for longer than every broker that Options names.
func (c *connector) all() []string {
	all := c.brokers[:len(c.brokers):len(c.brokers)]
	if reported := c.reported.Load(); reported != nil {
		for _, broker := range *reported {
			if !slices.Contains(c.brokers, broker) {
				all = append(all, broker)
			}
		}
	}
	return all
}

// learn stores the brokers that the cluster reports.
func (c *connector) learn(brokers []metadataAPI.ResponseBroker) {
	addresses := make([]string, len(brokers))
	for i, b := range brokers {
		addresses[i] = net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))
	}
	if len(addresses) > 0 {
		c.reported.Store(&addresses)
	}
}

// timeout returns the limit for one call of open: connectTimeout for each broker of Options
// that open may try. Brokers that the cluster has reported do not raise the limit, so open may
// try fewer of them.
func (c *connector) timeout() time.Duration {
	return connectTimeout * time.Duration(min(len(c.brokers), connectTries))
}

// connectError is a failed connection to one broker, and the step that failed.
type connectError struct {
	broker string
	step   string
	err    error
}

// Error names the broker and the step.
func (e *connectError) Error() string {
	return fmt.Sprintf("connection to Kafka broker %s: %s: %v", e.broker, e.step, e.err)
}

// Unwrap returns the cause.
func (e *connectError) Unwrap() error { return e.err }

// open returns an encrypted and authenticated connection. dial opens the TCP connection. A
// broker that does not answer in time is logged here, because a caller with a shorter
// deadline reports only its own deadline.
func (c *connector) open(ctx context.Context, dial dialFunc, network, address string) (net.Conn, error) {
	if address != anyBroker {
		return c.openOne(ctx, dial, network, address)
	}
	all := c.all()
	for tries := min(len(all), connectTries); ; tries-- {
		at := c.next.Load()
		conn, err := c.openOne(ctx, dial, network, all[at%uint64(len(all))])
		if err == nil {
			return conn, nil
		}
		c.next.CompareAndSwap(at, at+1) // later attempts begin with the next broker
		if tries <= 1 || ctx.Err() != nil {
			return nil, err
		}
	}
}

// openOne opens a connection to one broker within connectTimeout.
func (c *connector) openOne(ctx context.Context, dial dialFunc, network, address string) (net.Conn, error) {
	limited, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	step := "TCP"
	conn, err := dial(limited, network, address)
	if err == nil {
		conn = c.peers.join(conn, address, c.brokerHangs)
		stop := context.AfterFunc(limited, func() { conn.SetDeadline(time.Unix(1, 0)) }) // ends a blocked read or write
		var secured net.Conn
		secured, err = c.handshake(limited, conn, address, &step)
		if !stop() && err == nil {
			err = limited.Err()
		}
		if err == nil {
			return secured, nil
		}
		conn.Close()
	}
	silent := limited.Err() != nil || errors.Is(err, os.ErrDeadlineExceeded)
	failed := &connectError{broker: address, step: step, err: err}
	if silent && !errors.Is(ctx.Err(), context.Canceled) {
		c.log.Warn("broker does not answer a new connection", "broker", address, "step", step, "err", err)
	}
	return nil, failed
}

// handshake prepares a new TCP connection: TLS, the first request, and SASL. It sets step to
// the present step.
func (c *connector) handshake(ctx context.Context, conn net.Conn, address string, step *string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if c.tls != nil {
		*step = "TLS handshake"
		config := c.tls
		if config.ServerName == "" {
			config = config.Clone()
			config.ServerName = host
		}
		secured := tls.Client(conn, config)
		if err := secured.HandshakeContext(ctx); err != nil {
			return nil, err
		}
		conn = secured
	}
	*step = "first request"
	requests := protocol.NewConn(conn, c.clientID)
	if err := agreeOnVersions(requests); err != nil {
		return nil, err
	}
	if c.mechanism == nil {
		return conn, nil
	}
	*step = "SASL handshake"
	number, err := strconv.Atoi(port)
	if err != nil {
		return nil, err
	}
	login := func() (time.Duration, error) {
		return authenticate(sasl.WithMetadata(context.WithoutCancel(ctx), &sasl.Metadata{Host: host, Port: number}), requests, c.mechanism)
	}
	session, err := login()
	return newSessionConn(conn, session, login), err
}

// agreeOnVersions asks the broker for the versions of each request that it accepts, and
// chooses one for each.
func agreeOnVersions(conn *protocol.Conn) error {
	answer, err := conn.RoundTrip(&apiversions.Request{})
	if err != nil {
		return err
	}
	offered := answer.(*apiversions.Response)
	if offered.ErrorCode != 0 {
		return kafka.Error(offered.ErrorCode)
	}
	versions := map[protocol.ApiKey]int16{}
	for _, k := range offered.ApiKeys {
		key := protocol.ApiKey(k.ApiKey)
		versions[key] = key.SelectVersion(k.MinVersion, k.MaxVersion)
	}
	conn.SetVersions(versions)
	return nil
}

// authenticate sends the credentials and waits until the broker has accepted them. It returns after
// which time the broker wants them again; 0: never.
func authenticate(ctx context.Context, conn *protocol.Conn, mechanism sasl.Mechanism) (session time.Duration, err error) {
	answer, err := conn.RoundTrip(&saslhandshake.Request{Mechanism: mechanism.Name()})
	if err != nil {
		return 0, err
	}
	if code := answer.(*saslhandshake.Response).ErrorCode; code != 0 {
		return 0, kafka.Error(code)
	}
	steps, message, err := mechanism.Start(ctx)
	for done := false; err == nil && !done; {
		var challenge []byte
		if challenge, session, err = exchange(conn, message); err == nil {
			done, message, err = steps.Next(ctx, challenge)
		}
	}
	return session, err
}

// exchange sends one message of a SASL conversation and returns the broker's answer, and how long the
// session lasts. Old brokers reject credentials by closing the connection.
func exchange(conn *protocol.Conn, message []byte) (challenge []byte, session time.Duration, err error) {
	answer, err := conn.RoundTrip(&saslauthenticate.Request{AuthBytes: message})
	switch {
	case errors.Is(err, io.EOF):
		return nil, 0, kafka.SASLAuthenticationFailed
	case err != nil:
		return nil, 0, err
	}
	res := answer.(*saslauthenticate.Response)
	if res.ErrorCode != 0 {
		return nil, 0, fmt.Errorf("%w: %s", kafka.Error(res.ErrorCode), res.ErrorMessage)
	}
	return res.AuthBytes, time.Duration(res.SessionLifetimeMs) * time.Millisecond, nil
}
