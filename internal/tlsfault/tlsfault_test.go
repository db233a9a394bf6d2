package tlsfault_test

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/orderclose/orderclose/internal/tlsfault"
)

func TestExplainClosed_NamesTheCertificate(t *testing.T) {
	server := tlsfault.Server{Name: "the cache", Variables: "CACHE_TLS"}
	if what, do := server.ExplainClosed(&tls.Config{}); what != "the cache closed the connection; it may require a client certificate" ||
		do != "set CACHE_TLS_CERT_FILE and CACHE_TLS_KEY_FILE (in Go: Certificates of the tls.Config)" {
		t.Errorf("without a certificate: %q, %q", what, do)
	}
	certified := &tls.Config{Certificates: []tls.Certificate{{Leaf: &x509.Certificate{Subject: pkix.Name{CommonName: "shop"}}}}}
	if what, do := server.ExplainClosed(certified); what != `the cache closed the connection; it may reject the client with certificate "CN=shop"` ||
		!strings.HasPrefix(do, "have the certificate signed") {
		t.Errorf("with a certificate: %q, %q", what, do)
	}
}

func TestExplain_SaysWhatFailedAndWhatToDo(t *testing.T) {
	server := tlsfault.Server{Name: "the cache", Variables: "CACHE_TLS", Address: "use its name", Plain: "this port", Encrypted: "use the other port"}
	alone := &tls.Config{}
	certified := &tls.Config{Certificates: []tls.Certificate{{Leaf: &x509.Certificate{Subject: pkix.Name{CommonName: "shop"}}}}}
	alert := &net.OpError{Op: "remote error", Err: errors.New("tls: bad certificate")}
	for _, row := range []struct {
		err      error
		c        *tls.Config
		what, do string
	}{
		{&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, alone,
			"the cache's certificate is signed by an unknown authority", "set CACHE_TLS_CA_FILE to the file with the authority's certificate (in Go: " +
				"RootCAs of the tls.Config)"},
		{&tls.CertificateVerificationError{Err: x509.HostnameError{Certificate: &x509.Certificate{}, Host: "a"}}, alone,
			"the cache's certificate is for another host name", "use its name"},
		{&tls.CertificateVerificationError{Err: x509.CertificateInvalidError{Reason: x509.Expired}}, alone,
			"the cache's certificate is not valid", "renew it on the cache, or fix the clock of this machine"},
		{tls.RecordHeaderError{}, alone, "this port does not use TLS", "use the other port"},
		{alert, alone, "the cache ended the TLS handshake; it may require a client certificate",
			"set CACHE_TLS_CERT_FILE and CACHE_TLS_KEY_FILE (in Go: Certificates of the tls.Config)"},
		{alert, certified, `the cache rejects the client with certificate "CN=shop"`,
			"have the certificate signed by an authority that the cache trusts, and check that it has not expired"},
		{nil, nil, "", ""},
		{io.EOF, alone, "", ""},
		{&net.OpError{Op: "dial", Err: errors.New("refused")}, alone, "", ""},
	} {
		if what, do := server.Explain(fmt.Errorf("connect: %w", row.err), row.c); what != row.what || do != row.do {
			t.Errorf("%v is explained as %q, %q", row.err, what, do)
		}
	}
}
