package tlsfault_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/tlsfault"
)

func TestIs_FindsWhatEitherSideRefuses(t *testing.T) {
	for _, row := range []struct {
		err  error
		want bool
	}{
		{&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, true},
		{&tls.CertificateVerificationError{Err: x509.HostnameError{Certificate: &x509.Certificate{}, Host: "a"}}, true},
		{tls.RecordHeaderError{}, true},
		{&net.OpError{Op: "remote error", Err: errors.New("tls: bad certificate")}, true},
		{io.EOF, false},
		{&net.OpError{Op: "dial", Err: errors.New("refused")}, false},
	} {
		expect.Equal(t, tlsfault.Is(fmt.Errorf("connect: %w", row.err)), row.want, "%v", row.err)
	}
	expect.That(t, !tlsfault.Is(nil), "no error is a failure")
}
