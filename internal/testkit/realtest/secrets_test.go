package realtest

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/orderclose/orderclose/closer/payment"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/kafka/reads"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/process"
	"github.com/orderclose/orderclose/internal/testkit/ring"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
	"github.com/orderclose/orderclose/internal/wire"
)

// marks are secrets that are like no other text.
type marks struct {
	mu     sync.Mutex
	pieces map[string]string // the variable that has the secret, by piece of the secret
}

// secret returns a secret of three pieces, joined by letters that separate the parts of DSNs and URLs: a parser that cuts it may show one piece.
func (m *marks) secret(variable string) string {
	a, b, c := m.mark(variable), m.mark(variable), m.mark(variable)
	return a + "/" + b + "@" + c + "?x=#:%&"
}

// mark returns a secret of letters and digits.
func (m *marks) mark(variable string) string {
	piece := rand.Text()[:12]
	m.add(variable, piece)
	return piece
}

// key returns a secret that signs requests.
func (m *marks) key(variable string) string {
	return "whsec_" + base64.StdEncoding.EncodeToString([]byte(m.mark(variable)+m.mark(variable)))
}

func (m *marks) add(variable, piece string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pieces[piece] = variable
}

// find reports each secret that a text has: as it is, escaped for a URL, in hexadecimal digits, or in base64 at any position.
func (m *marks) find(t *testing.T, where, text string) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	for piece, variable := range m.pieces {
		forms := []string{piece, url.QueryEscape(piece), url.PathEscape(piece), hex.EncodeToString([]byte(piece))}
		for shift := range 3 {
			for _, encoding := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
				encoded := encoding.EncodeToString(append(make([]byte, shift), piece...))
				forms = append(forms, encoded[(shift*8+5)/6:len(encoded)-1]) // without digits that depend on the neighbors
			}
		}
		for _, form := range forms {
			if at := strings.Index(text, form); at >= 0 {
				t.Errorf("%s shows a secret of %s:\n%s", where, variable, text[max(0, at-300):min(len(text), at+200)])
				break
			}
		}
	}
}

// secretsRig runs the production binary with marked secrets.
type secretsRig struct {
	marks
	t    *testing.T
	dir  string // working folder of the processes; has topics.yaml
	env  map[string]string
	path string // of the binary
}

// noSecretIsShown runs all roles and commands with marked secrets, valid and broken, and searches for them in all that they print, answer and write.
func noSecretIsShown(t *testing.T, b *broker) {
	servers := realServers(t)
	r := &secretsRig{marks: marks{pieces: map[string]string{}}, t: t, dir: t.TempDir()}
	var err error
	r.path = must.Get(binary())(t)
	name := "oc_" + strings.ToLower(rand.Text()[:12])
	root, dsn := r.database(servers.DSN, name)
	r.env = map[string]string{
		environ.EnvDSN: dsn, environ.EnvRedis: r.redis(servers, name), environ.EnvListen: freeAddress(t),
		environ.EnvHTTPSecret: r.key(environ.EnvHTTPSecret), environ.EnvPaymentSecret: r.key(environ.EnvPaymentSecret) + "," +
			r.key(environ.EnvPaymentSecret) + "\n",
		environ.EnvConsoleListen: freeAddress(t), environ.EnvWebhookSecret: r.key(environ.EnvWebhookSecret),
	}
	r.kafkaEnviron(b)
	service := r.service()
	prefix := newPrefix()
	r.write("topics.yaml", fmt.Sprintf("topics: {prefix: %s}\npartitions: 1\nbuckets: [1s, 2s]\ncompensator: {period: 2s}\n"+
		"closer: {payment: {url: \"%s/pay\"}}\n", prefix, service.URL))
	cfg := must.Get(config.Load(filepath.Join(r.dir, "topics.yaml")))(t)
	_, security := b.mutual("admin")
	admin := b.connect(t, access{brokers: []string{b.mtls}, security: security})

	r.must("migrate")
	r.must("topics", "apply")
	r.play(admin, root, cfg)
	t.Run("Commands", func(t *testing.T) {
		ring.OnlyAll(t, "the roles that run, their console and their metrics")
		r.commands(t)
	})
	t.Run("Broken", func(t *testing.T) {
		ring.OnlyAll(t, "Commands, and the roles that run; the tests of internal/environ show no secret in their errors")
		r.broken(t, service.URL)
	})
	err = filepath.WalkDir(r.dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && !strings.HasPrefix(d.Name(), "given-") {
			r.find(t, path, readFile(t, path))
		}
		return err
	})
	expect.NoError(t, err)
}

// database creates a database and a user with a marked password. It returns the database as root, and the DSN of the user.
func (r *secretsRig) database(server, name string) (*store.Store, string) {
	r.t.Helper()
	dsn, drop, err := scenario.CreateDatabase(r.t.Context(), server, nil, name)
	must.Do(r.t, err)
	root := must.Get(store.Open(store.Options{DSN: dsn}))(r.t)
	password := r.secret(environ.EnvDSN)
	for _, statement := range []string{"CREATE USER " + name + "@'%' IDENTIFIED BY '" + password + "'", "GRANT ALL ON " + name + ".* TO " + name + "@'%'"} {
		must.Get(root.DB().ExecContext(r.t.Context(), statement))(r.t)
	}
	r.t.Cleanup(func() {
		ctx := context.Background()
		expect.NoError(r.t, expect.Err(root.DB().ExecContext(ctx, "DROP USER "+name+"@'%'")))
		root.Close()
		expect.NoError(r.t, drop(ctx))
	})
	cfg := must.Get(mysql.ParseDSN(dsn))(r.t)
	cfg.User, cfg.Passwd = name, password
	return root, cfg.FormatDSN()
}

// redis creates a user with a marked password, and returns the URL with it.
func (r *secretsRig) redis(s environ.Servers, name string) string {
	r.t.Helper()
	c := (&rig{t: r.t, servers: s}).redisClient()
	password := r.secret(environ.EnvRedis)
	must.Do(r.t, c.Do(r.t.Context(), "ACL", "SETUSER", name, "on", ">"+password, "allkeys", "+@all").Err())
	r.t.Cleanup(func() { c.Do(context.Background(), "ACL", "DELUSER", name) })
	u := must.Get(url.Parse(s.RedisURL))(r.t)
	u.User = url.UserPassword(name, password)
	return u.String()
}

// kafkaEnviron sets the access to Kafka as its super user, and a client certificate. Their secrets are random already.
func (r *secretsRig) kafkaEnviron(b *broker) {
	r.t.Helper()
	for line := range strings.Lines(readFile(r.t, filepath.Join(b.dir, "env"))) {
		name, value, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "export "), "=")
		r.env[name] = strings.Trim(value, "'")
	}
	r.add(environ.EnvSASLPassword, r.env[environ.EnvSASLPassword])
	r.env[environ.EnvTLSCert], r.env[environ.EnvTLSKey] = b.file("admin.crt"), b.file("admin.key")
	for line := range strings.Lines(readFile(r.t, b.file("admin.key"))) {
		if !strings.HasPrefix(line, "-----") {
			r.add(environ.EnvTLSKey, strings.TrimSpace(line))
		}
	}
}

// service is the payment provider and the stock service. The provider first fails, and the stock
// service refuses every release. Both then answer with everything that they got, as a gateway may do.
func (r *secretsRig) service() *httptest.Server {
	r.t.Helper()
	secrets := strings.Split(strings.TrimSpace(r.env[environ.EnvPaymentSecret]), ",")
	pays := must.Get(payment.Handler(secrets, payment.ProviderFunc(func(_ context.Context, ids []string) ([]payment.Answer, error) {
		answers := make([]payment.Answer, len(ids))
		for i := range answers {
			answers[i] = payment.Unpaid
		}
		return answers, nil
	})))(r.t)
	var failed sync.Once
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		refuse := q.URL.Path != "/pay"
		failed.Do(func() { refuse = true })
		if !refuse {
			pays.ServeHTTP(w, q)
			return
		}
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintln(w, q.Header.Get("Authorization"), q.URL.RawQuery, q.URL, q.Header)
		_, _ = io.Copy(w, q.Body)
	}))
	r.t.Cleanup(server.Close)
	return server
}

func (r *secretsRig) write(name, text string) (path string) {
	r.t.Helper()
	path = filepath.Join(r.dir, name)
	must.Do(r.t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// command returns a command of the binary whose output goes to out. Variables of changed replace others; empty ones are removed.
func (r *secretsRig) command(ctx context.Context, out io.Writer, changed map[string]string, args ...string) *exec.Cmd {
	env := maps.Clone(r.env)
	maps.Copy(env, changed)
	cmd := exec.CommandContext(ctx, r.path, append(args, "--debug")...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = r.dir, out, out
	for name, value := range env {
		if value != "" {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
	}
	return cmd
}

// must runs a command that has to succeed.
func (r *secretsRig) must(args ...string) {
	r.t.Helper()
	var out bytes.Buffer
	err := r.command(r.t.Context(), &out, nil, args...).Run()
	r.find(r.t, "orderclose "+strings.Join(args, " "), out.String())
	must.That(r.t, err == nil, "orderclose %v: %v\n%s", args, err, &out)
}

// play runs all roles. They close an order, write dead letters, and are asked for everything that they tell over HTTP. A SIGQUIT ends them with a dump.
func (r *secretsRig) play(admin *kafka.Cluster, root *store.Store, cfg *config.Config) {
	r.t.Helper()
	due := time.Now().Add(2 * time.Second).UTC().Truncate(time.Second)
	for _, statement := range []string{
		"INSERT INTO stock (sku_id, available, reserved) VALUES ('ink', 3, 2)",
		"INSERT INTO orders (id, category, status, created_at, expire_at, version) VALUES ('good', '', 0, UTC_TIMESTAMP(3), '" + due.Format(time.DateTime) + "', 1)",
		"INSERT INTO order_items (order_id, line_no, sku_id, quantity) VALUES ('good', 1, 'ink', 2)",
	} {
		must.Get(root.DB().ExecContext(r.t.Context(), statement))(r.t)
	}
	put(r.t, admin, cfg.Topics.Close, unreadable)
	r.must("send", "--id", "good", "--due", due.Format(time.RFC3339))
	ctx, cancel := context.WithTimeout(r.t.Context(), 3*waitLimit)
	defer cancel()
	out := &testkit.LogBuffer{}
	all := r.command(ctx, out, nil, "run", "all", "console")
	must.Do(r.t, all.Start())
	if err := process.Await(ctx, func(ctx context.Context) error {
		_, letters, err := admin.Bounds(ctx, cfg.Topics.DeadLetter, 0)
		return errors.Join(err, atLeast("dead letters", int(letters), 1))
	}); err != nil {
		r.t.Fatalf("%v:\n%s", err, out.Tail(4000))
	}
	r.answers("the running roles", r.env[environ.EnvListen], true)
	r.console()
	_ = all.Process.Signal(syscall.SIGQUIT)
	_ = all.Wait()
	log := out.Tail(1 << 24)
	for _, want := range []string{"level=DEBUG", "SIGQUIT: quit", "\ngoroutine "} {
		if !strings.Contains(log, want) {
			r.t.Errorf("the output has no %s:\n%s", want, out.Tail(4000))
		}
	}
	r.find(r.t, "the output of the roles", log)
	r.find(r.t, "a dead letter", r.records(admin, cfg.Topics.DeadLetter))
	r.find(r.t, "an event", r.records(admin, cfg.Topics.Events))
}

// answers searches everything that a process tells over HTTP.
func (r *secretsRig) answers(process, listen string, running bool) {
	r.t.Helper()
	for _, path := range []string{"/metrics", "/-/ready", "/-/healthy", "/debug/pprof/", "/debug/pprof/cmdline", "/debug/pprof/goroutine?debug=2",
		"/debug/pprof/heap?debug=1"} {
		code, body := request(r.t, "GET", "http://"+listen+path)
		expect.That(r.t, !running || code == 200, "GET %s answers %d %s", path, code, body)
		r.find(r.t, process+": GET "+path, body)
	}
	_, body := request(r.t, "POST", "http://"+listen+"/-/reload")
	r.find(r.t, process+": POST /-/reload", body)
}

// console searches the pages of the console.
func (r *secretsRig) console() {
	r.t.Helper()
	for _, path := range []string{
		"/", "/order", "/dead-letters", "/dead-letters/0/0", "/delays", "/payments", "/runbook", "/nothing",
	} {
		res := must.Get(http.Get("http://" + r.env[environ.EnvConsoleListen] + path))(r.t)
		body, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		expect.That(r.t, err == nil && res.StatusCode != http.StatusForbidden, "GET %s: %s, %v", path, res.Status, err)
		r.find(r.t, "the console: GET "+path, fmt.Sprint(res.Header)+string(body))
	}
}

// records returns all records of partition 0 of a topic, with their headers.
func (r *secretsRig) records(admin *kafka.Cluster, topic string) string {
	r.t.Helper()
	_, end, err := admin.Bounds(r.t.Context(), topic, 0)
	must.Do(r.t, err)
	var all strings.Builder
	for at := int64(0); at < end; {
		var records []wire.Message
		records, at, err = reads.Log{Cluster: admin}.ReadSome(r.t.Context(), topic, 0, at, end, reads.GlanceBytes)
		must.That(r.t, err == nil, "%v", err)
		for _, m := range records {
			fmt.Fprintf(&all, "%s %s %s\n", m.Key, m.Value, m.Headers)
		}
	}
	return all.String()
}

// commands runs every command with valid secrets.
func (r *secretsRig) commands(t *testing.T) {
	hour := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
	for _, args := range [][]string{
		{"topics", "check"}, {"status", "--partitions"}, {"order", "good"}, {"audit", "--from", "1h"},
		{"doctor"},
		{"dlq", "ls"}, {"replay", "--dead-letters", "--from", hour}, {"replay", "--from", hour, "--to", "now"},
		{"compensate", "-o", "json"}, {"migrate"}, {"migrate", "--print"},
		{"version"}, {"healthcheck"},
		{"send"}, {"no-such-command"}, {"run", "no-such-role"},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			t.Parallel()
			r.once(t, nil, args...)
		})
	}
}

// once runs a command, and searches its output.
func (r *secretsRig) once(t *testing.T, changed map[string]string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	var out bytes.Buffer
	err := r.command(ctx, &out, changed, args...).Run()
	expect.That(t, err == nil || out.Len() != 0, "orderclose %v printed nothing: %v", args, err)
	r.find(t, fmt.Sprintf("orderclose %v", args), out.String())
}

// broken runs doctor and all roles with values that a server refuses. The tests of internal/environ have values that no server gets.
func (r *secretsRig) broken(t *testing.T, service string) {
	const dsn, redisURL, mechanism, sasl, token = environ.EnvDSN, environ.EnvRedis, environ.EnvSASLMechanism, environ.EnvSASLPassword, environ.EnvSASLToken
	database := must.Get(mysql.ParseDSN(r.env[dsn]))(t)
	wrongRedis := must.Get(url.Parse(r.env[redisURL]))(t)
	wrongRedis.User = url.UserPassword("default", r.secret(redisURL))
	closed := freeAddress(t)
	wrongToken := r.write("given-token", r.mark(token)+"."+r.mark(token)+".x")
	for name, changed := range map[string]map[string]string{
		"a wrong password of the database": {dsn: "root:" + r.secret(dsn) + "@tcp(" + database.Addr + ")/" + database.DBName},
		"an unknown database":              {dsn: database.User + ":" + database.Passwd + "@tcp(" + database.Addr + ")/unknown"},
		"a database that is down":          {dsn: "shop:" + r.secret(dsn) + "@tcp(" + closed + ")/shop"},
		"TLS, and the servers have none":   {environ.EnvDatabaseTLSCA: r.env[environ.EnvTLSCA], environ.EnvRedisTLSCA: r.env[environ.EnvTLSCA]},
		"a wrong password of Redis":        {redisURL: wrongRedis.String()},
		"a Redis that is down":             {redisURL: "redis://shop:" + r.mark(redisURL) + "@" + closed + "/0"},
		"sentinels that are down": {redisURL: "redis://:" + r.mark(redisURL) + "@" + closed + "/0?master_name=m&username=shop&password=" +
			r.mark(redisURL)},
		"a wrong password of Kafka":       {sasl: r.secret(sasl)},
		"a wrong password of SCRAM":       {mechanism: kafka.ScramSHA512, sasl: r.secret(sasl)},
		"a token that the broker rejects": {mechanism: kafka.OAuthBearer, environ.EnvSASLUser: "", sasl: "", token: "file:" + wrongToken},
		"a token endpoint that refuses":   {mechanism: kafka.OAuthBearer, sasl: r.secret(sasl), token: service + "/token"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r.once(t, changed, "doctor")
			r.runBroken(t, changed)
		})
	}
}

// runBroken runs all roles until they exit or answer. Then it dumps them.
func (r *secretsRig) runBroken(t *testing.T, changed map[string]string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	changed = maps.Clone(changed)
	listen := freeAddress(t)
	changed[environ.EnvListen] = listen
	out := &testkit.LogBuffer{}
	cmd := r.command(ctx, out, changed, "run", "all")
	must.Do(t, cmd.Start())
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	_ = process.Await(ctx, func(context.Context) error {
		select {
		case <-ended:
			return nil
		default:
		}
		if code, body := request(t, "GET", "http://"+listen+"/-/healthy"); code != 200 {
			return fmt.Errorf("the roles answer %d %s", code, body)
		}
		return nil
	})
	select {
	case <-ended:
	default:
		r.answers("the roles", listen, false)
		_ = cmd.Process.Signal(syscall.SIGQUIT)
		<-ended
	}
	log := out.Tail(1 << 24)
	expect.That(t, log != "", "the roles printed nothing")
	r.find(t, "the output of the roles", log)
}
