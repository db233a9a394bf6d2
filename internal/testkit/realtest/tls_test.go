package realtest

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"maps"
	"math/big"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose/compensator"
	"github.com/orderclose/orderclose/internal/clients"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// authority is a private CA.
type authority struct {
	dir         string // has the files
	file        string // its certificate
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	key := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	a := &authority{dir: t.TempDir(), key: key, certificate: &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}}
	a.file, _ = a.write(t, "ca", a.certificate, key)
	return a
}

// issue writes a certificate for the names of a host, or of a client, and its key. It returns their paths.
func (a *authority) issue(t *testing.T, name string, hosts ...string) (certificate, private string) {
	t.Helper()
	key := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	return a.write(t, name, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, DNSNames: hosts,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}, key)
}

// write signs a certificate, and writes it and its key.
func (a *authority) write(t *testing.T, name string, template *x509.Certificate, key *ecdsa.PrivateKey) (certificate, private string) {
	t.Helper()
	signed, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	encoded, err2 := x509.MarshalPKCS8PrivateKey(key)
	must.Do(t, errors.Join(err, err2))
	certificate, private = filepath.Join(a.dir, name+".crt"), filepath.Join(a.dir, name+".key")
	for path, block := range map[string]*pem.Block{certificate: {Type: "CERTIFICATE", Bytes: signed}, private: {Type: "PRIVATE KEY", Bytes: encoded}} {
		must.Do(t, os.WriteFile(path, pem.EncodeToMemory(block), 0o600))
	}
	return certificate, private
}

// tlsServers are a MariaDB and a Redis that accept only TLS, with certificates for localhost, and not
// for 127.0.0.1. Redis requires a client certificate.
type tlsServers struct {
	ca             *authority
	mariadb, redis string // ports
	crt, key       string // of a client
}

// startTLSServers skips the test if servers run in containers, which would need the files mounted.
func startTLSServers(t *testing.T) tlsServers {
	t.Helper()
	if os.Getenv("ORDERCLOSE_SERVERS") == "containers" {
		t.Skip("the servers with TLS are native")
	}
	s := tlsServers{ca: newAuthority(t, "authority of the shop")}
	crt, key := s.ca.issue(t, "server", "localhost")
	s.crt, s.key = s.ca.issue(t, "shop")
	s.mariadb = startDatabase(t, "mariadb", "--require-secure-transport=ON", "--ssl-ca="+s.ca.file, "--ssl-cert="+crt, "--ssl-key="+key).Port
	redis := newServer(t, "redis")
	redis.Args = []string{"--port", "0", "--tls-port", redis.Port, "--tls-cert-file", crt, "--tls-key-file", key, "--tls-ca-cert-file", s.ca.file}
	redis.start()
	s.redis = redis.Port
	return s
}

// tlsEnviron are environment variables.
type tlsEnviron map[string]string

// with returns a copy with other values.
func (e tlsEnviron) with(others tlsEnviron) tlsEnviron {
	e = maps.Clone(e)
	maps.Copy(e, others)
	return e
}

// environ names both servers and the files for them. user is one of the database.
func (s tlsServers) environ(user, host string) tlsEnviron {
	return tlsEnviron{
		environ.EnvDSN: user + "@tcp(" + host + ":" + s.mariadb + ")/information_schema", environ.EnvDatabaseTLSCA: s.ca.file,
		environ.EnvRedis: "rediss://" + host + ":" + s.redis, environ.EnvRedisTLSCA: s.ca.file, environ.EnvRedisTLSCert: s.crt, environ.EnvRedisTLSKey: s.key,
	}
}

// connect returns clients of both servers, as the production binary makes them.
func (e tlsEnviron) connect(t *testing.T) clients.Clients {
	t.Helper()
	s, err := environ.Read(func(name string) (string, bool) { v, ok := e[name]; return v, ok }, environ.EnvDSN, environ.EnvRedis)
	must.That(t, err == nil, "%v: %v", e, err)
	c, err := clients.Connect(s, clients.Database{}, config.Default(), nil)
	must.That(t, err == nil, "%v: %v", e, err)
	t.Cleanup(c.Close)
	return c
}

func TestReal_TLSToDatabaseAndRedis(t *testing.T) {
	plain := realServers(t)
	s := startTLSServers(t)
	right := s.environ("root", "localhost")
	root := right.connect(t)
	must.Get(root.Store.DB().ExecContext(t.Context(), "CREATE USER certified@'%' REQUIRE X509"))(t)
	other := newAuthority(t, "another authority")
	otherCrt, otherKey := other.issue(t, "stranger")
	certificate := tlsEnviron{environ.EnvDatabaseTLSCert: s.crt, environ.EnvDatabaseTLSKey: s.key}
	const failed, anyError = "TLS to the database server failed; docs/security.md, TLS, ", "any error" // Redis may close the connection without a reason
	for name, row := range map[string]struct {
		env             tlsEnviron
		database, redis string // in the errors; "": it works
	}{
		"the right authority": {right, "", ""},
		"another authority": {right.with(tlsEnviron{environ.EnvDatabaseTLSCA: other.file, environ.EnvRedisTLSCA: other.file}), failed,
			"unknown authority"},
		"the authorities of the system": {tlsEnviron{environ.EnvDSN: right[environ.EnvDSN] + "?tls=true", environ.EnvRedis: right[environ.EnvRedis]}, failed,
			"unknown authority"},
		"another host name":                  {s.environ("root", "127.0.0.1"), failed, "x509: "},
		"no TLS, and the servers require it": {tlsEnviron{environ.EnvDSN: right[environ.EnvDSN], environ.EnvRedis: "redis://localhost:" + s.redis}, "TLS", anyError},
		"TLS, and the servers have none": {right.with(tlsEnviron{environ.EnvDSN: plain.DSN + "information_schema",
			environ.EnvRedis: strings.Replace(plain.RedisURL, "redis://", "rediss://", 1)}), failed, anyError},
		"client certificates": {s.environ("certified", "localhost").with(certificate), "", ""},
		"no client certificates": {s.environ("certified", "localhost").with(tlsEnviron{environ.EnvRedisTLSCert: "", environ.EnvRedisTLSKey: ""}),
			"the database server refuses the user; check user and password, and TLS", anyError},
		"client certificates of another authority": {s.environ("certified", "localhost").with(tlsEnviron{
			environ.EnvDatabaseTLSCert: otherCrt, environ.EnvDatabaseTLSKey: otherKey, environ.EnvRedisTLSCert: otherCrt, environ.EnvRedisTLSKey: otherKey}),
			failed, anyError},
	} {
		t.Run(name, func(t *testing.T) {
			c := row.env.connect(t)
			ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
			defer cancel()
			for _, got := range []struct {
				server string
				err    error
				want   string
			}{{"database", c.Store.Ping(ctx), row.database}, {"redis", c.Redis.Ping(ctx).Err(), row.redis}} {
				if (got.err == nil) != (got.want == "") || got.err != nil && got.want != anyError && !strings.Contains(got.err.Error(), got.want) {
					t.Errorf("%s: got %v\nwant %s", got.server, got.err, got.want)
				}
			}
		})
	}
	t.Run("a sweep", func(t *testing.T) { sweepByTLS(t, s, root) })
}

var aclLine = regexp.MustCompile("(?m)^ACL SETUSER orderclose .*$")

// sweepByTLS runs the production binary with TLS to both servers, as the user of Redis that docs/security.md creates.
func sweepByTLS(t *testing.T, s tlsServers, root clients.Clients) {
	var acl []any
	for _, word := range strings.Fields(aclLine.FindString(readFile(t, "../../../docs/security.md"))) {
		acl = append(acl, strings.ReplaceAll(word, ">password", ">"+password("orderclose")))
	}
	if err := root.Redis.Do(t.Context(), acl...).Err(); err != nil {
		t.Fatalf("%v: %v", acl, err)
	}
	env := s.environ("root", "localhost")
	env[environ.EnvRedis] = "rediss://orderclose:" + url.PathEscape(password("orderclose")) + "@localhost:" + s.redis
	env[environ.EnvDSN] = strings.Replace(env[environ.EnvDSN], "information_schema", "shop", 1)
	must.Get(root.Store.DB().ExecContext(t.Context(), "CREATE DATABASE shop"))(t)
	path, err := binary()
	must.Do(t, err)
	file := filepath.Join(t.TempDir(), "topics.yaml")
	must.Do(t, os.WriteFile(file, []byte("buckets: [1m]\n"), 0o600))
	run := func(args ...string) []byte {
		t.Helper()
		cmd := exec.Command(path, append(args, "--config", file)...)
		for name, value := range env {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		must.That(t, err == nil, "orderclose %v: %v\n%s%s", args, err, out, &stderr)
		return out
	}
	run("migrate")
	run("doctor")
	for _, statement := range orders[:2] {
		must.Get(root.Store.DB().ExecContext(t.Context(), strings.Replace(statement, "INTO ", "INTO shop.", 1)))(t)
	}
	var report compensator.Report
	expect.Is(t, json.Unmarshal(run("compensate", "-o", "json"), &report), nil, "the report")
	probes, err := root.Redis.Exists(t.Context(), config.Default().Compensator.Lock.Key+":probe").Result()
	expect.That(t, err == nil && probes == 1, "doctor has not written to Redis: %d, %v", probes, err)
	var cipher, name string
	if err := env.connect(t).Store.DB().QueryRowContext(t.Context(), "SHOW STATUS LIKE 'Ssl_cipher'").Scan(&name, &cipher); err != nil || cipher == "" {
		t.Errorf("the connection is not encrypted: %v", err)
	}
}
