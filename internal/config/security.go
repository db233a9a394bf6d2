package config

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"

	"github.com/orderclose/orderclose/internal/kafka"
)

// The variables that secure the connections to Kafka. A file may hold the user and the
// password: the variable with _FILE appended names the file.
const (
	EnvTLS           = "ORDERCLOSE_KAFKA_TLS"           // on or off; default: on if one of the files below is named
	EnvTLSCA         = "ORDERCLOSE_KAFKA_TLS_CA_FILE"   // the CA of the brokers' certificates; default: the CAs of the system
	EnvTLSCert       = "ORDERCLOSE_KAFKA_TLS_CERT_FILE" // the certificate of this process, for mutual TLS
	EnvTLSKey        = "ORDERCLOSE_KAFKA_TLS_KEY_FILE"
	EnvSASLMechanism = "ORDERCLOSE_KAFKA_SASL_MECHANISM"
	EnvSASLUser      = "ORDERCLOSE_KAFKA_SASL_USER"
	EnvSASLPassword  = "ORDERCLOSE_KAFKA_SASL_PASSWORD"
)

// kafkaSecurity reads the variables above and the files that they name.
func kafkaSecurity(lookup func(string) (string, bool)) (kafka.Security, error) {
	t, err1 := kafkaTLS(lookup)
	s, err2 := kafkaSASL(lookup)
	return kafka.Security{TLS: t, SASL: s}, errors.Join(err1, err2)
}

func kafkaTLS(lookup func(string) (string, bool)) (*tls.Config, error) {
	onOff, _ := lookup(EnvTLS)
	ca, _ := lookup(EnvTLSCA)
	cert, _ := lookup(EnvTLSCert)
	key, _ := lookup(EnvTLSKey)
	switch {
	case onOff != "" && onOff != "on" && onOff != "off":
		return nil, fmt.Errorf("%s is neither on nor off", EnvTLS)
	case onOff == "off" && ca+cert+key != "":
		return nil, fmt.Errorf("%s is off, but a file for it is named; set it to on, or unset %s, %s and %s", EnvTLS, EnvTLSCA, EnvTLSCert, EnvTLSKey)
	case onOff != "on" && ca+cert+key == "":
		return nil, nil
	case (cert == "") != (key == ""):
		return nil, fmt.Errorf("%s and %s belong together; set both, or neither", EnvTLSCert, EnvTLSKey)
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	return c, errors.Join(trust(c, ca), identify(c, cert, key))
}

// trust makes c accept brokers whose certificates are signed by a CA in the file.
func trust(c *tls.Config, file string) error {
	if file == "" {
		return nil
	}
	pem, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("%s: %w; mount the certificate there or unset the variable", EnvTLSCA, err)
	}
	c.RootCAs = x509.NewCertPool()
	if !c.RootCAs.AppendCertsFromPEM(pem) {
		return fmt.Errorf("%s: there is no certificate in %s; write it there as PEM (-----BEGIN CERTIFICATE-----)", EnvTLSCA, file)
	}
	return nil
}

// identify makes c present the certificate to brokers. The files are read again for each
// connection, so that a renewed certificate needs no restart. If certificate and key do
// not match, as while the files are being replaced, the last matching pair is used.
func identify(c *tls.Config, certFile, keyFile string) error {
	if certFile == "" {
		return nil
	}
	for _, v := range []struct{ name, file string }{{EnvTLSCert, certFile}, {EnvTLSKey, keyFile}} {
		if _, err := os.ReadFile(v.file); err != nil {
			return fmt.Errorf("%s: %w; mount it there or unset the variable", v.name, err)
		}
	}
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil { // err is safe to show: it quotes nothing of the files
		return fmt.Errorf("%s and %s are no pair: %w; name a certificate and its own key, both PEM, the key not encrypted",
			EnvTLSCert, EnvTLSKey, err)
	}
	c.Certificates = []tls.Certificate{pair}
	var last atomic.Pointer[tls.Certificate]
	last.Store(&pair)
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		if now, err := tls.LoadX509KeyPair(certFile, keyFile); err == nil {
			last.Store(&now)
		}
		return last.Load(), nil
	}
	return nil
}

func kafkaSASL(lookup func(string) (string, bool)) (*kafka.SASL, error) {
	mechanism, _ := lookup(EnvSASLMechanism)
	user, err1 := variable(lookup, EnvSASLUser)
	password, err2 := variable(lookup, EnvSASLPassword)
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	if mechanism == "" && user+password == "" {
		return nil, nil
	}
	for _, v := range []struct{ name, value, example string }{
		{EnvSASLMechanism, mechanism, " to " + strings.Join(kafka.Mechanisms(), ", ")},
		{EnvSASLUser, user, ""},
		{EnvSASLPassword, password, ", or name a file that holds it in " + EnvSASLPassword + "_FILE"},
	} {
		if v.value == "" {
			return nil, fmt.Errorf("%s is not set, but other SASL variables are; set it%s", v.name, v.example)
		}
	}
	s := kafka.SASL{Mechanism: mechanism, User: user, Password: password}
	if s.Check() != nil { // do not wrap the error: it quotes the value, which may be a misplaced password
		return nil, fmt.Errorf("%s is unknown; set it to %s", EnvSASLMechanism, strings.Join(kafka.Mechanisms(), ", "))
	}
	return &s, nil
}
