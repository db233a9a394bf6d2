// Package tlsfault says in one sentence that TLS to a server failed. The clients of Kafka and of the database put the sentence
// before the error of crypto/tls, which has the reason.
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

// Do is what to do about TLS that failed.
const Do = "docs/security.md, TLS, says how to switch it on, and which certificates both sides need"

// Sentence says that TLS to a server failed.
func Sentence(server string, err error) error {
	return fmt.Errorf("TLS to %s failed; %s: %w", server, Do, err)
}

// Is reports whether TLS failed: one side does not accept the certificate of the other, or does not use TLS.
func Is(err error) bool {
	var alert *net.OpError // the server has ended the handshake
	return errors.As(err, new(*tls.CertificateVerificationError)) || errors.As(err, new(tls.RecordHeaderError)) ||
		errors.As(err, &alert) && alert.Op == "remote error"
}

// ClosedByPeer reports whether the server closed the connection without an answer.
func ClosedByPeer(err error) bool {
	if op := (*net.OpError)(nil); errors.As(err, &op) && op.Op == "dial" {
		return false
	}
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
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
