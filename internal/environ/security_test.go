package environ_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// makePair writes a self-signed NAME.crt and NAME.key, and returns both paths.
func makePair(t *testing.T, dir, name string) (crt, key string) {
	t.Helper()
	private := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	now := time.Now()
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour)}
	certificate := must.Get(x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private))(t)
	encoded := must.Get(x509.MarshalPKCS8PrivateKey(private))(t)
	crt, key = filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	write(t, crt, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})))
	write(t, key, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded})))
	return crt, key
}

func TestRead_ReadsTheSecuritySettingsOfKafka(t *testing.T) {
	dir := t.TempDir()
	crt, key := makePair(t, dir, "relay")
	secret := filepath.Join(dir, "password")
	write(t, secret, "hunter2\n")
	mutual := vars{"ORDERCLOSE_KAFKA_TLS_CA_FILE": crt, "ORDERCLOSE_KAFKA_TLS_CERT_FILE": crt, "ORDERCLOSE_KAFKA_TLS_KEY_FILE": key}
	scram := vars{"ORDERCLOSE_KAFKA_SASL_MECHANISM": "SCRAM-SHA-512", "ORDERCLOSE_KAFKA_SASL_USER": "relay", "ORDERCLOSE_KAFKA_SASL_PASSWORD_FILE": secret}
	const ofCluster = "logicalCluster=lkc-1"
	byFile := vars{"ORDERCLOSE_KAFKA_SASL_MECHANISM": "OAUTHBEARER", "ORDERCLOSE_KAFKA_SASL_TOKEN": "file:" + secret,
		"ORDERCLOSE_KAFKA_SASL_EXTENSIONS": ofCluster}
	byCommand := vars{"ORDERCLOSE_KAFKA_SASL_MECHANISM": "OAUTHBEARER", "ORDERCLOSE_KAFKA_SASL_TOKEN": "command: cat  " + secret,
		"ORDERCLOSE_KAFKA_SASL_EXTENSIONS": ofCluster}
	both := maps.Clone(mutual)
	maps.Copy(both, scram)
	for _, row := range []struct {
		env  vars
		want string
		ca   bool
	}{
		{vars{}, "not encrypted", false},
		{vars{"ORDERCLOSE_KAFKA_TLS_CA_FILE": "system"}, "TLS", false},
		{vars{"ORDERCLOSE_KAFKA_TLS_CA_FILE": crt}, "TLS", true},
		{mutual, "mutual TLS", true},
		{scram, `not encrypted, SASL SCRAM-SHA-512 as user "relay"`, false},
		{both, `mutual TLS, SASL SCRAM-SHA-512 as user "relay"`, true},
		{byFile, "not encrypted, SASL OAUTHBEARER", false},
		{byCommand, "not encrypted, SASL OAUTHBEARER", false},
	} {
		s, err := environ.Read(row.env.lookup)
		if err != nil {
			t.Errorf("%v: %v", row.env, err)
			continue
		}
		expect.Equal(t, s.Kafka.String(), row.want, "%v", row.env)
		expect.That(t, s.Kafka.TLS == nil || (s.Kafka.TLS.RootCAs != nil) == row.ca, "%v: the CA is wrong", row.env)
		expect.That(t, s.Kafka.TLS == nil || !s.Kafka.TLS.InsecureSkipVerify, "%v: the certificates of brokers are not verified", row.env)
		if s.Kafka.SASL != nil && s.Kafka.SASL.Token != nil {
			token, _, err := s.Kafka.SASL.Token(t.Context())
			if token != "hunter2" || err != nil || s.Kafka.SASL.Extensions["logicalCluster"] != row.env["ORDERCLOSE_KAFKA_SASL_EXTENSIONS"][len("logicalCluster="):] {
				t.Errorf("%v: the token is wrong: %v", row.env, err)
			}
		} else if s.Kafka.SASL != nil && s.Kafka.SASL.Password != "hunter2" {
			t.Errorf("%v: the password is wrong", row.env)
		}
		text := fmt.Sprintf("%v %+v %#v", s, &s, s)
		expect.That(t, !strings.Contains(text, "hunter2"), "printed as %s", text)
	}
}

func TestRead_ErrorsOfKafkaSecurityShowNoSecret(t *testing.T) {
	dir := t.TempDir()
	crt, key := makePair(t, dir, "relay")
	_, other := makePair(t, dir, "other")
	junk := filepath.Join(dir, "junk")
	write(t, junk, "hunter2")
	const (
		ca, cert, private         = "ORDERCLOSE_KAFKA_TLS_CA_FILE", "ORDERCLOSE_KAFKA_TLS_CERT_FILE", "ORDERCLOSE_KAFKA_TLS_KEY_FILE"
		mechanism, user, password = "ORDERCLOSE_KAFKA_SASL_MECHANISM", "ORDERCLOSE_KAFKA_SASL_USER", "ORDERCLOSE_KAFKA_SASL_PASSWORD"
		pair                      = cert + " and " + private

		token    = "ORDERCLOSE_KAFKA_SASL_TOKEN"
		noSource = mechanism + " is OAUTHBEARER, but " + token + " does not say where tokens come from; " +
			"set it to file:NAME or command:PROGRAM ARGUMENTS"
	)
	for _, row := range []struct {
		env  vars
		want string
	}{
		{vars{ca: "no/such"}, ca + " names a file that cannot be read: no such file or directory; mount the certificate there or unset the variable"},
		{vars{ca: junk}, ca + ": there is no certificate in " + junk + "; write it there as PEM (-----BEGIN CERTIFICATE-----)"},
		{vars{cert: crt}, pair + " belong together; set both, or neither"},
		{vars{private: key}, pair + " belong together; set both, or neither"},
		{vars{cert: "no/such", private: key}, cert + " names a file that cannot be read: no such file or directory; mount it there or unset the variable"},
		{vars{cert: crt, private: "no/such"}, private + " names a file that cannot be read: no such file or directory; mount it there or unset the variable"},
		{vars{cert: crt, private: other},
			pair + " are no pair: tls: private key does not match public key; name a certificate and its own key, both PEM, the key not encrypted"},
		{vars{cert: crt, private: junk},
			pair + " are no pair: tls: failed to find any PEM data in key input; name a certificate and its own key, both PEM, the key not encrypted"},
		{vars{mechanism: "PLAIN", password: "hunter2"}, user + " is not set, but other SASL variables are; set it"},
		{vars{mechanism: "PLAIN", user: "u"},
			password + " is not set, but other SASL variables are; set it, or name a file that holds it in " + password + "_FILE"},
		{vars{user: "u", password: "hunter2"},
			mechanism + " is not set, but other SASL variables are; set it to SCRAM-SHA-512, SCRAM-SHA-256, PLAIN, OAUTHBEARER"},
		{vars{mechanism: "hunter2", user: "u", password: "hunter2"}, mechanism +
			" is unknown; set it to SCRAM-SHA-512, SCRAM-SHA-256, PLAIN, OAUTHBEARER"},
		{vars{mechanism: "OAUTHBEARER"}, noSource},
		{vars{mechanism: "OAUTHBEARER", token: "hunter2"}, noSource},
		{vars{mechanism: "OAUTHBEARER", token: "file:"}, noSource},
		{vars{mechanism: "OAUTHBEARER", token: "command: "}, noSource},
		{vars{mechanism: "OAUTHBEARER", token: "ftp://id/hunter2"}, noSource},
		{vars{mechanism: "OAUTHBEARER", token: "file:hunter2"}, token + " names a file that cannot be read: no such file or directory; mount the token there"},
		{vars{mechanism: "OAUTHBEARER", token: "file:" + junk, password: "hunter2"},
			password + " is set, and OAUTHBEARER has no password; unset it"},
		{vars{mechanism: "OAUTHBEARER", token: "file:" + junk, "ORDERCLOSE_KAFKA_SASL_EXTENSIONS": "hunter2"},
			"ORDERCLOSE_KAFKA_SASL_EXTENSIONS is not name=value,name=value; write it such as logicalCluster=lkc-1,identityPoolId=pool-1"},
		{vars{mechanism: "PLAIN", user: "u", password: "hunter2", token: "file:" + junk},
			token + " is set, but only OAUTHBEARER uses it; unset it, or set " + mechanism + " to OAUTHBEARER"},
		{vars{mechanism: "PLAIN", user: "u", password: "hunter2", password + "_FILE": junk}, password + " and " + password + "_FILE are both set; unset one"},
	} {
		_, err := environ.Read(row.env.lookup)
		if err == nil {
			t.Errorf("%v is accepted", row.env)
		} else if diff := cmp.Diff(row.want, err.Error()); diff != "" {
			t.Errorf("%v (-want +got):\n%s", row.env, diff)
		}
	}
}

// TestRead_ARenewedCertificateNeedsNoRestart: relays run for months, and certificates expire meanwhile.
func TestRead_ARenewedCertificateNeedsNoRestart(t *testing.T) {
	dir := t.TempDir()
	crt, key := makePair(t, dir, "relay")
	s := must.Get(environ.Read(vars{"ORDERCLOSE_KAFKA_TLS_CERT_FILE": crt, "ORDERCLOSE_KAFKA_TLS_KEY_FILE": key}.lookup))(t)
	first := shown(t, s.Kafka)
	makePair(t, dir, "relay")
	second := shown(t, s.Kafka)
	expect.That(t, second != first, "the old certificate is presented")
	write(t, key, "half of a k")
	expect.Equal(t, shown(t, s.Kafka), second, "while the files are being replaced, the last matching pair is not presented")
}

// shown returns the certificate that a broker sees.
func shown(t *testing.T, s kafka.Security) string {
	t.Helper()
	c := must.Get(s.TLS.GetClientCertificate(nil))(t)
	return string(c.Certificate[0])
}

func TestRead_ReadsTheTLSFilesOfDatabaseAndRedis(t *testing.T) {
	dir := t.TempDir()
	crt, key := makePair(t, dir, "shop")
	for _, server := range []struct {
		prefix string
		of     func(environ.Servers) *tls.Config
	}{
		{"ORDERCLOSE_DB_TLS", func(s environ.Servers) *tls.Config { return s.DatabaseTLS }},
		{"ORDERCLOSE_REDIS_TLS", func(s environ.Servers) *tls.Config { return s.RedisTLS }},
	} {
		ca, cert, private := server.prefix+"_CA_FILE", server.prefix+"_CERT_FILE", server.prefix+"_KEY_FILE"
		for _, row := range []struct {
			env              vars
			tls, ca, present bool
		}{
			{vars{}, false, false, false},
			{vars{ca: crt}, true, true, false},
			{vars{cert: crt, private: key}, true, false, true},
			{vars{ca: crt, cert: crt, private: key}, true, true, true},
		} {
			s, err := environ.Read(row.env.lookup)
			if err != nil {
				t.Errorf("%v: %v", row.env, err)
				continue
			}
			c := server.of(s)
			expect.That(t, (c != nil) == row.tls, "%v: TLS is %v", row.env, c)
			if c != nil && ((c.RootCAs != nil) != row.ca || (c.GetClientCertificate != nil) != row.present || c.InsecureSkipVerify || c.MinVersion != tls.VersionTLS12) {
				t.Errorf("%v: wrong configuration %+v", row.env, c)
			}
			if s.Kafka.TLS != nil || server.prefix == "ORDERCLOSE_DB_TLS" && s.RedisTLS != nil || server.prefix == "ORDERCLOSE_REDIS_TLS" && s.DatabaseTLS != nil {
				t.Errorf("%v: the files are used for another server", row.env)
			}
		}
		for _, row := range []struct {
			env  vars
			want string
		}{
			{vars{ca: "no/such"}, ca + " names a file that cannot be read: no such file or directory; mount the certificate there or unset the variable"},
			{vars{cert: crt}, cert + " and " + private + " belong together; set both, or neither"},
		} {
			_, err := environ.Read(row.env.lookup)
			expect.That(t, err != nil && err.Error() == row.want, "%v: got %v, want %s", row.env, err, row.want)
		}
	}
}

// A command that uses one server does not read the files of the others.
func TestRead_ReadsOnlyTheFilesOfTheNamedServers(t *testing.T) {
	env := vars{"ORDERCLOSE_KAFKA_BROKERS": "a:1", "ORDERCLOSE_DB_TLS_CA_FILE": "no/such", "ORDERCLOSE_REDIS_TLS_CA_FILE": "no/such"}
	expect.NoError(t, expect.Err(environ.Read(env.lookup, environ.EnvBrokers)))
}
