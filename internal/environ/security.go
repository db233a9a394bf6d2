package environ

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/kafka/login"
)

// The variables that secure the connections to Kafka. A file may hold the user and the
// password: the variable with _FILE appended names the file.
const (
	EnvTLSCA         = "ORDERCLOSE_KAFKA_TLS_CA_FILE"   // the CA of the brokers' certificates, or systemCAs. One of the three files turns TLS on
	EnvTLSCert       = "ORDERCLOSE_KAFKA_TLS_CERT_FILE" // the certificate of this process, for mutual TLS
	EnvTLSKey        = "ORDERCLOSE_KAFKA_TLS_KEY_FILE"
	EnvSASLMechanism = "ORDERCLOSE_KAFKA_SASL_MECHANISM"
	EnvSASLUser      = "ORDERCLOSE_KAFKA_SASL_USER"
	EnvSASLPassword  = "ORDERCLOSE_KAFKA_SASL_PASSWORD"

	// EnvSASLToken says where the tokens of OAUTHBEARER come from: file:NAME, which is read for each login, or command:PROGRAM
	// ARGUMENTS, without a shell.
	EnvSASLToken      = "ORDERCLOSE_KAFKA_SASL_TOKEN"
	EnvSASLExtensions = "ORDERCLOSE_KAFKA_SASL_EXTENSIONS" // name=value,name=value
)

// The variables that secure the connections to the database and to Redis, with the meanings of
// those of Kafka. A file turns TLS on. Without files, the DSN does by its parameter tls=true, and
// the URL by its scheme rediss.
const (
	EnvDatabaseTLSCA   = "ORDERCLOSE_DB_TLS_CA_FILE"
	EnvDatabaseTLSCert = "ORDERCLOSE_DB_TLS_CERT_FILE"
	EnvDatabaseTLSKey  = "ORDERCLOSE_DB_TLS_KEY_FILE"
	EnvRedisTLSCA      = "ORDERCLOSE_REDIS_TLS_CA_FILE"
	EnvRedisTLSCert    = "ORDERCLOSE_REDIS_TLS_CERT_FILE"
	EnvRedisTLSKey     = "ORDERCLOSE_REDIS_TLS_KEY_FILE"
)

// tlsFiles has the variables that name the files of the connections to one server.
type tlsFiles struct{ ca, cert, key string }

var (
	kafkaFiles    = tlsFiles{EnvTLSCA, EnvTLSCert, EnvTLSKey}
	databaseFiles = tlsFiles{EnvDatabaseTLSCA, EnvDatabaseTLSCert, EnvDatabaseTLSKey}
	redisFiles    = tlsFiles{EnvRedisTLSCA, EnvRedisTLSCert, EnvRedisTLSKey}
)

// tls returns the configuration that the files give; nil: no file is named.
func (e *environment) tls(f tlsFiles) *tls.Config {
	ca, cert, key := e.plain(f.ca), e.plain(f.cert), e.plain(f.key)
	if ca+cert+key == "" {
		return nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if (cert == "") != (key == "") {
		e.fail(fmt.Errorf("%s and %s belong together; set both, or neither", f.cert, f.key))
		return nil
	}
	e.fail(f.trust(c, ca))
	if cert != "" {
		pair, err := f.pair(cert, key)
		if err != nil {
			e.fail(err)
			return nil
		}
		c.Certificates = []tls.Certificate{*pair()}
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return pair(), nil }
	}
	return c
}

// systemCAs stands for the file of the CA: the CAs that the system trusts.
const systemCAs = "system"

// trust makes c accept servers whose certificates are signed by a CA in the file; "" or systemCAs: by a CA of the system.
func (f tlsFiles) trust(c *tls.Config, file string) error {
	if file == "" || file == systemCAs {
		return nil
	}
	pem, err := readFile(file, config.MaxFile)
	if err != nil {
		return fmt.Errorf("%s names a file that cannot be read: %w; mount the certificate there or unset the variable", f.ca, err)
	}
	c.RootCAs = x509.NewCertPool()
	if !c.RootCAs.AppendCertsFromPEM(pem) {
		return fmt.Errorf("%s: there is no certificate in %s; write it there as PEM (-----BEGIN CERTIFICATE-----)", f.ca, file)
	}
	return nil
}

// pair returns a function that reads certificate and key again, so that a renewed certificate
// needs no restart. If they do not match, as while the files are being replaced, the function
// returns the last matching pair.
func (f tlsFiles) pair(certFile, keyFile string) (func() *tls.Certificate, error) {
	for _, v := range []struct{ name, file string }{{f.cert, certFile}, {f.key, keyFile}} {
		if _, err := readFile(v.file, config.MaxFile); err != nil {
			return nil, fmt.Errorf("%s names a file that cannot be read: %w; mount it there or unset the variable", v.name, err)
		}
	}
	first, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil { // err is safe to show: it quotes nothing of the files
		return nil, fmt.Errorf("%s and %s are no pair: %w; name a certificate and its own key, both PEM, the key not encrypted",
			f.cert, f.key, err)
	}
	var last atomic.Pointer[tls.Certificate]
	last.Store(&first)
	return func() *tls.Certificate {
		if now, err := tls.LoadX509KeyPair(certFile, keyFile); err == nil {
			last.Store(&now)
		}
		return last.Load()
	}, nil
}

func (e *environment) kafkaSASL() *kafka.SASL {
	failed := len(e.errs)
	s := kafka.SASL{Mechanism: e.plain(EnvSASLMechanism), User: e.value(EnvSASLUser), Password: e.value(EnvSASLPassword)}
	extra := "" // a variable that only OAUTHBEARER uses
	for _, name := range []string{EnvSASLExtensions, EnvSASLToken} {
		if e.plain(name) != "" {
			extra = name
		}
	}
	switch {
	case len(e.errs) > failed, s.Mechanism+s.User+s.Password+extra == "":
		return nil
	case s.Mechanism == kafka.OAuthBearer:
		e.refuse(s.Password != "", "%s is set, and %s has no password; unset it", EnvSASLPassword, kafka.OAuthBearer)
		return e.bearer(s.User)
	case extra != "":
		e.fail(fmt.Errorf("%s is set, but only %s uses it; unset it, or set %s to %s", extra, kafka.OAuthBearer, EnvSASLMechanism, kafka.OAuthBearer))
		return nil
	}
	for _, v := range []struct{ name, value, example string }{
		{EnvSASLMechanism, s.Mechanism, " to " + strings.Join(kafka.Mechanisms(), ", ")},
		{EnvSASLUser, s.User, ""},
		{EnvSASLPassword, s.Password, ", or name a file that holds it in " + EnvSASLPassword + "_FILE"},
	} {
		if v.value == "" {
			e.fail(fmt.Errorf("%s is not set, but other SASL variables are; set it%s", v.name, v.example))
			return nil
		}
	}
	// Do not wrap the error: it quotes the value, which may be a misplaced password
	e.refuse(s.Check() != nil, "%s is unknown; set it to %s", EnvSASLMechanism, strings.Join(kafka.Mechanisms(), ", "))
	return &s
}

// bearer returns the login by tokens.
func (e *environment) bearer(user string) *kafka.SASL {
	kind, rest, _ := strings.Cut(e.plain(EnvSASLToken), ":")
	s := kafka.SASL{Mechanism: kafka.OAuthBearer, User: user}
	switch {
	case kind == "command" && strings.TrimSpace(rest) != "":
		s.Token = login.TokenFromCommand(strings.Fields(rest))
	case kind == "file" && rest != "":
		if _, err := readFile(rest, config.MaxSecret); err != nil {
			e.fail(fmt.Errorf("%s names a file that cannot be read: %w; mount the token there", EnvSASLToken, err))
		}
		s.Token = login.TokenFromFile(rest)
	default:
		e.fail(fmt.Errorf("%s is %s, but %s does not say where tokens come from; set it to file:NAME or command:PROGRAM ARGUMENTS",
			EnvSASLMechanism, kafka.OAuthBearer, EnvSASLToken))
	}
	s.Extensions = map[string]string{}
	for entry := range strings.SplitSeq(e.plain(EnvSASLExtensions), ",") {
		if name, value, _ := strings.Cut(strings.TrimSpace(entry), "="); name+value != "" {
			s.Extensions[name] = value
		}
	}
	e.refuse(login.CheckExtensions(s.Extensions) != nil,
		"%s is not name=value,name=value; write it such as logicalCluster=lkc-1,identityPoolId=pool-1", EnvSASLExtensions)
	return &s
}
