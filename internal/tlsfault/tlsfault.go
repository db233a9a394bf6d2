// Package tlsfault says in words why a TLS connection to a server failed, and how to fix it. The
// clients of Kafka, the database and Redis put these words before the error of crypto/tls.
package tlsfault

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
)

// Server says how a message names a server and its settings.
type Server struct {
	Name      string // such as "the broker"
	Variables string // the beginning of the environment variables that name files: ORDERCLOSE_KAFKA_TLS
	Address   string // how to address the server by a name in its certificate
	Plain     string // what does not use TLS, such as "this listener of the broker"
	Encrypted string // how to reach what uses TLS
}

// Explain returns what failed in a connection by the configuration c, and what to do. Both are
// empty if err is no failure of TLS.
func (s Server) Explain(err error, c *tls.Config) (what, do string) {
	var (
		hostname  x509.HostnameError
		invalid   x509.CertificateInvalidError
		untrusted *tls.CertificateVerificationError
		noTLS     tls.RecordHeaderError
	)
	switch {
	case errors.As(err, &hostname):
		return s.Name + "'s certificate is for another host name", s.Address
	case errors.As(err, &invalid):
		return s.Name + "'s certificate is not valid", "renew it on " + s.Name + ", or fix the clock of this machine"
	case errors.As(err, &untrusted):
		return s.Name + "'s certificate is signed by an unknown authority",
			fmt.Sprintf("set %s_CA_FILE to the file with the authority's certificate (in Go: RootCAs of the tls.Config)", s.Variables)
	case errors.As(err, &noTLS):
		return s.Plain + " does not use TLS", s.Encrypted
	case alert(err) && !hasCertificate(c):
		return s.Name + " ended the TLS handshake; it may require a client certificate", s.setCertificate()
	case alert(err):
		return fmt.Sprintf("%s rejects the client with certificate %q", s.Name, Subject(c)), s.signCertificate()
	}
	return "", ""
}

// ExplainClosed is Explain for a connection that the server has closed without a reason, before its
// first answer. In TLS 1.3 the server verifies the client's certificate after the client's side of
// the handshake has ended: the client's first request may meet a closed connection, and the alert
// that says why is then lost.
func (s Server) ExplainClosed(c *tls.Config) (what, do string) {
	if !hasCertificate(c) {
		return s.Name + " closed the connection; it may require a client certificate", s.setCertificate()
	}
	return fmt.Sprintf("%s closed the connection; it may reject the client with certificate %q", s.Name, Subject(c)), s.signCertificate()
}

func (s Server) setCertificate() string {
	return fmt.Sprintf("set %s_CERT_FILE and %[1]s_KEY_FILE (in Go: Certificates of the tls.Config)", s.Variables)
}

func (s Server) signCertificate() string {
	return "have the certificate signed by an authority that " + s.Name + " trusts, and check that it has not expired"
}

// ClosedByPeer reports whether the server closed the connection without an answer.
func ClosedByPeer(err error) bool {
	if op := (*net.OpError)(nil); errors.As(err, &op) && op.Op == "dial" {
		return false
	}
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// alert reports whether the server ended the TLS handshake with an alert.
func alert(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "remote error"
}

func hasCertificate(c *tls.Config) bool { return c != nil && len(c.Certificates) > 0 }

// Subject returns the subject of the client's certificate; empty: c has no certificate.
func Subject(c *tls.Config) string {
	if !hasCertificate(c) {
		return ""
	}
	leaf := c.Certificates[0].Leaf
	if leaf == nil && len(c.Certificates[0].Certificate) > 0 {
		leaf, _ = x509.ParseCertificate(c.Certificates[0].Certificate[0])
	}
	if leaf == nil {
		return ""
	}
	return leaf.Subject.String()
}
