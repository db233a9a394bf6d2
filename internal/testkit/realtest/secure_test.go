package realtest

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/ring"
)

// The broker requires authentication, and an ACL for every operation.
func TestSecure(t *testing.T) {
	servers := realServers(t)
	t.Parallel()
	parts := []string{"producer", "relay", "closer", "outbox", "operator"}
	var plain []string
	for _, part := range parts {
		plain = append(plain, "plain-"+part)
	}
	b := newBroker(t, plain...)
	ways := map[string]func(part string) access{
		"PLAIN":         func(part string) access { return b.by(kafka.Plain, "plain-"+part) },
		"SCRAM-SHA-256": func(part string) access { return b.by(kafka.ScramSHA256, "scram256-"+part) },
		"SCRAM-SHA-512": func(part string) access { return b.by(kafka.ScramSHA512, "scram512-"+part) },
		"OAUTHBEARER":   func(part string) access { return b.bearer("bearer-"+part, time.Now().Add(time.Hour)) },
		"mutual TLS":    func(part string) access { return b.certified("mutual-" + part) },
	}
	rows := accessTable(t)
	var users []string
	var acls []kafkago.ACLEntry
	rigs := map[string]string{} // their prefixes
	for way, user := range map[string]string{"PLAIN": "plain-", "SCRAM-SHA-256": "scram256-", "SCRAM-SHA-512": "scram512-", "OAUTHBEARER": "bearer-",
		"mutual TLS": "mutual-"} {
		rigs[way] = newPrefix()
		for _, part := range parts {
			users = append(users, user+part)
			for _, row := range rows[part] {
				acls = append(acls, row.acl(t, user+part, rigs[way]))
			}
		}
	}
	b.scramUsers(users...)
	b.grant(acls)

	for way, as := range ways {
		t.Run("ARoundBy "+way, func(t *testing.T) {
			if way == "PLAIN" || way == "SCRAM-SHA-256" || way == "OAUTHBEARER" {
				ring.OnlyAll(t, "a round by SCRAM-SHA-512 and one by mutual TLS; Refusals tries the wrong ways of each")
			}
			t.Parallel()
			who := &secured{parts: map[string]access{}}
			for _, part := range parts {
				who.parts[part] = as(part)
			}
			_, admin := b.mutual("admin")
			s := servers
			s.Brokers, s.Kafka = []string{b.mtls}, admin
			r := newRigIn(t, s, rigs[way], who)
			r.start("relay", "closer", "outbox")
			r.play(5, 20, time.Second)
			r.publishedAreClosed() // nothing sweeps here
			r.drain()
			r.must("topics", "check")
			log := r.logs.Tail(1 << 20)
			expect.That(t, !strings.Contains(log, "secret of"), "a password is in the log")
		})
	}
	t.Run("NoSecretIsShown", func(t *testing.T) {
		t.Parallel()
		noSecretIsShown(t, b)
	})
	t.Run("Refusals", func(t *testing.T) {
		t.Parallel()
		refusals(t, b)
	})
}

func (r *rig) count(query string, args ...any) int {
	r.t.Helper()
	n := 0
	must.Do(r.t, r.store.DB().QueryRowContext(r.t.Context(), query, args...).Scan(&n))
	return n
}

// refusals tries every wrong way to authenticate, and checks the errors.
func refusals(t *testing.T, b *broker) {
	ca := environ.EnvTLSCA + "=" + b.file("ca.crt")
	sasl := func(mechanism, user, password string) []string {
		return []string{environ.EnvBrokers + "=" + b.sasl, environ.EnvSASLMechanism + "=" + mechanism, environ.EnvSASLUser + "=" + user,
			environ.EnvSASLPassword + "=" + password}
	}
	renamed := b.with(append(sasl(kafka.Plain, "plain-relay", password("plain-relay")), ca)...)
	renamed.security.TLS.ServerName = "kafka-1"
	foreign := b.with(environ.EnvBrokers+"="+b.mtls, ca)
	foreign.security.TLS = stranger(t, b)
	const failed = "TLS to the broker failed; docs/security.md, TLS, "
	for name, way := range map[string]struct {
		access
		want string
		is   error
	}{
		"a wrong password by PLAIN": {b.with(append(sasl(kafka.Plain, "plain-relay", "hunter2"), ca)...),
			`the broker rejects user "plain-relay" with PLAIN; check the password`, kafkago.SASLAuthenticationFailed},
		"a wrong password by SCRAM": {b.with(append(sasl(kafka.ScramSHA512, "scram512-relay", "hunter2"), ca)...),
			`the broker rejects user "scram512-relay" with SCRAM-SHA-512; check the password`, kafkago.SASLAuthenticationFailed},
		"a user whom SCRAM does not know": {b.with(append(sasl(kafka.ScramSHA256, "nobody", "hunter2"), ca)...),
			`the broker rejects user "nobody"`, kafkago.SASLAuthenticationFailed},
		"a token that has ended": {b.bearer("bearer-relay", time.Now().Add(-time.Minute)),
			"the broker rejects the client of this login with OAUTHBEARER; check the token's issuer, audience, scope and end", kafkago.SASLAuthenticationFailed},
		"SASL on a listener without": {b.with(environ.EnvBrokers+"="+b.mtls, ca, environ.EnvTLSCert+"="+b.file("admin.crt"),
			environ.EnvTLSKey+"="+b.file("admin.key"), environ.EnvSASLMechanism+"=PLAIN", environ.EnvSASLUser+"=admin", environ.EnvSASLPassword+"=hunter2"),
			"this listener of the broker does not accept SASL", kafkago.IllegalSASLState},
		"no SASL on a listener with": {b.with(environ.EnvBrokers+"="+b.sasl, ca), "the broker closed a connection (TLS)", nil},
		"plain text": {b.with(sasl(kafka.Plain, "plain-relay", password("plain-relay"))...),
			`the broker closed a connection (not encrypted, SASL PLAIN as user "plain-relay"); use the port of a listener that accepts such connections`,
			nil},
		"no client certificate": {b.with(environ.EnvBrokers+"="+b.mtls, ca),
			"docs/security.md", nil}, // the broker may close the connection without a reason
		"a certificate of another authority": {foreign, "docs/security.md", nil},
		"a broker that nobody vouches for": {b.with(append(sasl(kafka.Plain, "plain-relay", password("plain-relay")), environ.EnvTLSCA+"=system")...),
			failed, nil},
		"a broker of another authority": {b.with(append(sasl(kafka.Plain, "plain-relay", password("plain-relay")),
			environ.EnvTLSCA+"="+newAuthority(t, "another").file)...),
			failed, nil},
		"a broker of another name": {renamed, failed, nil},
	} {
		err := ping(t, way.access)
		switch {
		case err == nil:
			t.Errorf("%s gets in", name)
		case !strings.Contains(err.Error(), way.want):
			t.Errorf("%s: the error is\n%v\nwant in it\n%s", name, err, way.want)
		case way.is != nil && !errors.Is(err, way.is):
			t.Errorf("%s: %v is no %v", name, err, way.is)
		case strings.Contains(err.Error(), "hunter2"), strings.Contains(fmt.Sprintf("%+v %#v", err, err), "secret of"):
			t.Errorf("%s: the error tells the password: %v", name, err)
		}
	}
}
