package realtest

import (
	"context"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"hash"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/process"
	"github.com/orderclose/orderclose/internal/testkit/servers"
	"github.com/orderclose/orderclose/producer"
)

// broker is a secured broker of a test's own. The password of each user is derived from the user's name.
type broker struct {
	t          *testing.T
	dir        string
	sasl, mtls string // host:port of its listeners
	admin      *kafkago.Client
}

func password(user string) string { return "secret of " + user }

// newBroker starts a secured broker that knows the users by PLAIN, or skips the test.
func newBroker(t *testing.T, plain ...string) *broker {
	t.Helper()
	return newBrokerWith(t, nil, plain...)
}

// newBrokerWith is newBroker with lines of server.properties.
func newBrokerWith(t *testing.T, settings []string, plain ...string) *broker {
	t.Helper()
	mtls := freePort(t)
	server := newServer(t, "kafka-secured", append([]string{mtls}, settings...)...)
	server.Env = []string{smallBroker}
	b := &broker{t: t, dir: server.Dir, sasl: server.Addr(), mtls: "127.0.0.1:" + mtls}
	var users strings.Builder
	for _, user := range plain {
		fmt.Fprintf(&users, "%s=%s\n", user, password(user))
	}
	must.Do(t, os.WriteFile(filepath.Join(b.dir, "plain-users"), []byte(users.String()), 0o600))
	server.startNative()
	_, security := b.mutual("admin")
	b.admin = &kafkago.Client{Addr: kafkago.TCP(b.mtls), Timeout: 20 * time.Second, Transport: &kafkago.Transport{TLS: security.TLS}}
	t.Cleanup(b.admin.Transport.(*kafkago.Transport).CloseIdleConnections)
	return b
}

// smallBroker is a variable of the broker's script: many tests start brokers at once.
const smallBroker = "KAFKA_HEAP_OPTS=-Xmx512m -XX:TieredStopAtLevel=1"

func (b *broker) file(name string) string { return filepath.Join(b.dir, "tls", name) }

// access is a way to authenticate: the environment for the production binary, and the security settings that result from it.
type access struct {
	env      []string
	brokers  []string
	security kafka.Security
}

// with parses the environment as the binary does.
func (b *broker) with(env ...string) access {
	b.t.Helper()
	s := must.Get(environ.Read(func(name string) (string, bool) {
		for _, v := range env {
			if value, ok := strings.CutPrefix(v, name+"="); ok {
				return value, true
			}
		}
		return "", false
	}))(b.t)
	return access{env, s.Brokers, s.Kafka}
}

// by returns the access of a user by SASL over TLS.
func (b *broker) by(mechanism, user string) access {
	return b.with(environ.EnvBrokers+"="+b.sasl, environ.EnvTLSCA+"="+b.file("ca.crt"),
		environ.EnvSASLMechanism+"="+mechanism, environ.EnvSASLUser+"="+user, environ.EnvSASLPassword+"="+password(user))
}

// bearer returns the access of a user by a token that nobody has signed, in a file, until it ends.
func (b *broker) bearer(user string, ends time.Time) access {
	b.t.Helper()
	part := base64.RawURLEncoding.EncodeToString
	token := part([]byte(`{"alg":"none"}`)) + "." + part(fmt.Appendf(nil, `{"sub":%q,"exp":%d,"of":%q}`, user, ends.Unix(), password(user))) + "."
	file := filepath.Join(b.t.TempDir(), "token")
	must.Do(b.t, os.WriteFile(file, []byte(token+"\n"), 0o600))
	return b.with(environ.EnvBrokers+"="+b.sasl, environ.EnvTLSCA+"="+b.file("ca.crt"), environ.EnvSASLMechanism+"="+kafka.OAuthBearer,
		environ.EnvSASLToken+"=file:"+file)
}

// mutual returns access by an existing client certificate.
func (b *broker) mutual(user string) ([]string, kafka.Security) {
	a := b.with(environ.EnvBrokers+"="+b.mtls, environ.EnvTLSCA+"="+b.file("ca.crt"),
		environ.EnvTLSCert+"="+b.file(user+".crt"), environ.EnvTLSKey+"="+b.file(user+".key"))
	return a.env, a.security
}

// certified returns access by a client certificate, which it creates.
func (b *broker) certified(user string) access {
	b.t.Helper()
	err := servers.Run(b.t.Context(), "kafka-secured.sh", nil, "cert", b.dir, user)
	must.That(b.t, err == nil, "certificate of %s: %v", user, err)
	env, security := b.mutual(user)
	return access{env, []string{b.mtls}, security}
}

// scramUsers creates users for both SCRAM mechanisms.
func (b *broker) scramUsers(users ...string) {
	b.t.Helper()
	b.scramUsersBy(kafkago.ScramMechanismSha256, sha256.New, users)
	b.scramUsersBy(kafkago.ScramMechanismSha512, sha512.New, users)
}

func (b *broker) scramUsersBy(mechanism kafkago.ScramMechanism, h func() hash.Hash, users []string) {
	b.t.Helper()
	const iterations = 4096 // the minimum of Kafka
	var all []kafkago.UserScramCredentialsUpsertion
	for _, user := range users {
		salt := []byte(rand.Text())
		salted := must.Get(pbkdf2.Key(h, password(user), salt, iterations, h().Size()))(b.t)
		all = append(all, kafkago.UserScramCredentialsUpsertion{Name: user, Mechanism: mechanism, Iterations: iterations, Salt: salt, SaltedPassword: salted})
	}
	res := must.Get(b.admin.AlterUserScramCredentials(b.t.Context(), &kafkago.AlterUserScramCredentialsRequest{Upsertions: all}))(b.t)
	for _, r := range res.Results {
		must.That(b.t, r.Error == nil, "user %s: %v", r.User, r.Error)
	}
}

// grant creates ACLs and waits until the broker applies them.
func (b *broker) grant(acls []kafkago.ACLEntry) {
	b.t.Helper()
	res := must.Get(b.admin.CreateACLs(b.t.Context(), &kafkago.CreateACLsRequest{ACLs: acls}))(b.t)
	for _, err := range res.Errors {
		must.Do(b.t, err)
	}
	await(b.t, func() error {
		res, err := b.admin.DescribeACLs(b.t.Context(), &kafkago.DescribeACLsRequest{Filter: kafkago.ACLFilter{
			ResourceTypeFilter: kafkago.ResourceTypeAny, ResourcePatternTypeFilter: kafkago.PatternTypeAny,
			Operation: kafkago.ACLOperationTypeAny, PermissionType: kafkago.ACLPermissionTypeAny,
		}})
		if err != nil {
			return err
		}
		n := 0
		for _, r := range res.Resources {
			n += len(r.ACLs)
		}
		return atLeast("ACLs", n, len(acls))
	})
}

// connect returns a client with the access.
func (b *broker) connect(t *testing.T, a access) *kafka.Cluster {
	t.Helper()
	c := must.Get(kafka.New(kafka.Options{Brokers: a.brokers, Security: a.security}))(t)
	t.Cleanup(c.Close)
	return c
}

// secured maps the parts of a rig to users.
type secured struct {
	parts map[string]access // producer, relay, closer, operator
}

// environ returns the environment for the part that args start.
func (s *secured) environ(args []string) []string {
	part := "operator"
	if len(args) > 1 && args[0] == "run" {
		part = args[1]
	}
	return s.parts[part].env
}

func (s *secured) producer(o *producer.Options) {
	a := s.parts["producer"]
	o.Brokers, o.TLS, o.SASL = a.brokers, a.security.TLS, a.security.SASL
}

// ping returns the error that a client with the access gets. It repeats what a busy broker does not answer.
func ping(t *testing.T, a access) error {
	t.Helper()
	c := must.Get(kafka.New(kafka.Options{Brokers: a.brokers, Security: a.security}))(t)
	defer c.Close()
	return insist(t.Context(), func() error { return c.Ping(t.Context()) })
}

// insist calls do, and again for waitLimit while a busy server, or one that has just started, does not answer.
func insist(ctx context.Context, do func() error) (err error) {
	ctx, cancel := context.WithTimeout(ctx, waitLimit)
	defer cancel()
	_ = process.Await(ctx, func(context.Context) error {
		if err = do(); kafka.Passes(err) {
			return err
		}
		return nil
	})
	return err
}

// stranger returns a TLS configuration that trusts the broker and has a certificate of another authority.
func stranger(t *testing.T, b *broker) *tls.Config {
	t.Helper()
	dir := t.TempDir()
	script := fmt.Sprintf(`openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=admin -keyout %[1]s/key -out %[1]s/crt`,
		dir)
	out, err := exec.Command("sh", "-c", script).CombinedOutput()
	must.That(t, err == nil, "%v\n%s", err, out)
	a := b.with(environ.EnvBrokers+"="+b.mtls, environ.EnvTLSCA+"="+b.file("ca.crt"), environ.EnvTLSCert+"="+dir+"/crt", environ.EnvTLSKey+"="+dir+"/key")
	return a.security.TLS
}
