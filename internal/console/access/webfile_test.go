package access_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/console/access"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

const webVariable = "ORDERCLOSE_CONSOLE_WEB_CONFIG_FILE"

// wrongFiles are files with the errors that they get, which name lines and quote nothing.
func wrongFiles() map[string]string {
	h := "$2y$05$abcdefghijklmnopqrstuuDIEddBSuRWBBEY6g5zv60IAP5bSSfki"
	const (
		noKey  = ": there is no such key, or its value is not valid; docs/security.md has an example"
		noHash = ": the value is no hash of bcrypt; htpasswd -nB -C 10 NAME prints NAME:HASH"
		noCost = ": bcrypt does not know the cost, or it is larger than 14 and a check takes seconds; htpasswd -nB -C 10 NAME prints another one"
		noName = ": the name is empty, has more than 200 bytes, or letters that cannot be printed"
		only   = "rate_limit and http_server_config.headers are not for the console, which has its own limits and headers; remove them"
	)
	return map[string]string{
		"hunter2":                                                              "line 1" + noKey,
		"basic_auth_users: hunter2":                                            "line 1" + noKey,
		"basic_auth_users:\n ann: [hunter2]":                                   "line 2" + noKey,
		"basic_auth_users:\n ann:" + h:                                         "line 2" + noKey,
		"\nusers: {ann: x}\ntls: {}":                                           "line 2, line 3" + noKey,
		"basic_auth_users: {ann: x, ann: y}":                                   "line 1" + noKey,
		"tls_server_config: {min_version: 1}":                                  "the file" + noKey,
		"basic_auth_users:\n ann: hunter2\n ben: " + h + "\n cem:\n":           "line 2" + noHash + "\nline 4" + noHash,
		"basic_auth_users: {ann: " + h[:59] + "}":                              "line 1" + noHash,
		"basic_auth_users: {ann: " + strings.Replace(h, "2y", "2x", 1) + "}":   "line 1" + noHash,
		"basic_auth_users: {ann: \"{SHA}hunter2=\"}":                           "line 1" + noHash,
		"basic_auth_users: {ann: " + strings.Replace(h, "$05", "$15", 1) + "}": "line 1" + noCost,
		"basic_auth_users: {ann: " + strings.Replace(h, "$05", "$99", 1) + "}": "line 1" + noCost,
		"basic_auth_users: {ann: " + strings.Replace(h, "$05", "$03", 1) + "}": "line 1" + noCost,
		"basic_auth_users: {\"\": " + h + "}":                                  "line 1" + noName,
		"basic_auth_users: {\"a\\tn\": " + h + "}":                             "line 1" + noName,
		"basic_auth_users: {" + strings.Repeat("x", 201) + ": " + h + "}":      "line 1" + noName,
		"rate_limit: {burst: 1, interval: 1s}":                                 only,
		"http_server_config: {headers: {X-Frame-Options: deny}}":               only,
		"tls_server_config: {cert_file: x}":                                    "tls_server_config: missing one of key or key_file",
		"tls_server_config: {cert_file: x, key_file: server.key}": "tls_server_config: failed to read cert_file (…): open …: " +
			"no such file or directory",
		"tls_server_config: {cert_file: server.key, key_file: server.crt}": "tls_server_config: failed to load X509KeyPair: tls: failed " +
			"to find certificate PEM data in certificate input, but did find a private key; PEM inputs may have been switched",
		"tls_server_config: {cert_file: server.crt, key_file: server.key, client_auth_type: hunter2}": "tls_server_config: invalid ClientAuth: …",
		"tls_server_config: {cert_file: server.crt, key_file: server.key, client_auth_type: RequireAndVerifyClientCert}": "client certificates are verified, but " +
			"there is neither client_ca_file nor client_ca; name the CA that signs them",
		"tls_server_config: {cert_file: server.crt, key_file: server.key, client_allowed_sans: [ann]}": "client_allowed_sans needs " +
			"client_auth_type: RequireAndVerifyClientCert",
		"# tokens\nann operator sha256:9f86d0\n\nben viewer sha256:00\n 李  operator\tsha256:00": "line 2" + noKey,
		"# of htpasswd\nann:" + h + "\nben b:" + h + "\n":                                       "line 2" + noKey,
	}
}

func TestWebFile_ErrorsNameTheLineAndQuoteNothing(t *testing.T) {
	for text, want := range wrongFiles() {
		r := &rig{t: t, dir: t.TempDir()}
		r.pair("server", nil)
		_, err := access.New(access.Options{Settings: config.Console{Listen: "127.0.0.1:9465", WebConfigFile: r.write("web.yml", text)}})
		expect.Same(t, fmt.Sprint(err), webVariable+": "+want, "%q", text)
	}
}

// Whatever the file has, New neither panics nor shows a secret, and a file without users knows nobody.
func FuzzWebFile(f *testing.F) {
	for text := range wrongFiles() {
		f.Add(text)
	}
	f.Add("basic_auth_users: {ann: $2y$05$abcdefghijklmnopqrstuuDIEddBSuRWBBEY6g5zv60IAP5bSSfki}")
	f.Fuzz(func(t *testing.T, text string) {
		r := &rig{t: t, dir: t.TempDir()}
		s := config.Console{Listen: "127.0.0.1:9465", WebConfigFile: r.write("web.yml", text), Operators: []string{"ann"}}
		if _, err := access.New(access.Options{Settings: s}); err == nil && !strings.Contains(text, "basic_auth_users") && !strings.Contains(text, "client_ca") {
			t.Errorf("%q has users", text)
		}
	})
}

func TestWebFile_IsReadAgainWhenItChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, withPasswords)
		status := func(u user) int {
			t.Helper()
			time.Sleep(time.Minute)
			return r.do(u.request(request{path: "/api/v1/status"})).StatusCode
		}
		ben := user{header: map[string]string{"Authorization": basic("ben", "secret of ben")}}
		users := func(names ...string) {
			text := "basic_auth_users:\n"
			for _, name := range names {
				text += "  " + name + ": " + hash("secret of "+name) + "\n"
			}
			r.write("web.yml", text)
		}
		expect.That(t, status(ben) == 401 && status(ann()) == 200, "the file is not used")
		users("ben")
		expect.That(t, status(ben) == 200 && status(ann()) == 401, "the changed file is not used")
		for _, text := range []string{
			"basic_auth_users: {ann: " + hash("secret of ann") + ", cem: x}",
			"",                     // as while somebody writes the file: it must not let everybody in
			"basic_auth_users: {}", // the same
			strings.Repeat("# a comment\n", 100_000),
		} {
			r.write("web.yml", text)
			for range 3 {
				expect.That(t, status(ben) == 200 && status(ann()) == 401 && status(user{}) == 401, "after %.20q the last valid file is not used", text)
			}
		}
		must.Do(t, os.Remove(r.dir+"/web.yml"))
		expect.Equal(t, status(ben), 200, "the last valid file is not used")
		users("ben", "cem")
		expect.Equal(t, status(ben), 200, "the repaired file is not used")
		users("ann")
		expect.That(t, status(ben) == 401 && status(ann()) == 200, "the changed file is not used")
		var got []string
		for entry := range strings.Lines(r.log.String()) {
			if _, text, ok := strings.Cut(entry, `msg="users `); ok {
				got = append(got, strings.TrimSpace(text))
			}
		}
		const rejected = `and TLS rejected, keeping the previous ones" err="`
		ended := "ORDERCLOSE_CONSOLE_OPERATORS is set, but nobody is known by name"
		want := []string{
			`or TLS changed" variable=` + webVariable,
			rejected + webVariable + `: line 1: the value is no hash of bcrypt; htpasswd -nB -C 10 NAME prints NAME:HASH"`,
			rejected + ended,
			rejected + webVariable + ` names a file that cannot be read: it is larger than 1024 KiB; mount the file there or unset the variable"`,
			rejected + webVariable + ` names a file that cannot be read: no such file or directory; mount the file there or unset the variable"`,
			`or TLS changed" variable=` + webVariable,
			`and TLS valid again" variable=` + webVariable,
			`or TLS changed" variable=` + webVariable,
		}
		for i := range got {
			if at := strings.Index(got[i], ended); at >= 0 {
				got[i] = got[i][:at+len(ended)]
			}
		}
		expect.Same(t, got, want, "the log")
	})
}

// serveTLS serves a rig on a real listener with its TLS.
func serveTLS(t *testing.T, r *rig) (address string) {
	t.Helper()
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	server := &http.Server{Handler: r.handler, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelWarn)}
	go func() { _ = server.Serve(tls.NewListener(listener, r.gate.TLS())) }()
	t.Cleanup(func() { _ = server.Close() })
	return listener.Addr().String()
}

// askTLS sends a request for a path over TLS, with a client certificate or nil, and returns the answer and the
// certificate of the server.
func askTLS(t *testing.T, address, path string, cert *tls.Certificate, authorization string) (resp *http.Response, served []byte, err error) {
	t.Helper()
	transport := &http.Transport{
		ForceAttemptHTTP2: true, DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true, VerifyPeerCertificate: func(raw [][]byte, _ [][]*x509.Certificate) error {
			served = raw[0]
			return nil
		}},
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, address)
		},
	}
	if cert != nil {
		// As Certificates a client sends only what the server asks for.
		transport.TLSClientConfig.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cert, nil }
	}
	req := must.Get(http.NewRequest("GET", "https://example.com"+path, nil))(t)
	if authorization != "" {
		req.Header.Set("Authorization", authorization)
	}
	if resp, err = (&http.Client{Transport: transport}).Do(req); err == nil {
		resp.Body.Close()
	}
	transport.CloseIdleConnections()
	return resp, served, err
}

// With TLS the console serves other machines, over HTTP/2 too.
func TestWebFile_ServesTLS(t *testing.T) {
	r := newRig(t, func(r *rig, s *config.Console) {
		withPasswords(r, s)
		r.pair("server", nil)
		text := must.Get(os.ReadFile(s.WebConfigFile))(t)
		r.write("web.yml", string(text)+"tls_server_config: {cert_file: server.crt, key_file: server.key}\n")
		s.Hosts, s.Listen = []string{"example.com"}, "0.0.0.0:9465"
	})
	address := serveTLS(t, r)
	for authorization, status := range map[string]int{"": 401, basic("ann", "x"): 401, basic("ann", "secret of ann"): 200} {
		resp, _, err := askTLS(t, address, "/", nil, authorization)
		if err != nil || resp.StatusCode != status || resp.ProtoMajor != 2 || resp.Header.Get("Strict-Transport-Security") == "" {
			t.Errorf("%q: %v, %+v", authorization, err, resp)
		}
	}
	if conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}); err == nil {
		conn.Close()
		t.Error("TLS 1.1 is accepted")
	}
}

// A console runs for months, and certificates expire meanwhile. While the files are being replaced, the last
// matching pair is served.
func TestWebFile_ARenewedCertificateNeedsNoRestart(t *testing.T) {
	t.Parallel() // waits for the times of files
	r := newRig(t, func(r *rig, s *config.Console) {
		r.pair("server", nil)
		s.WebConfigFile = r.write("web.yml", "tls_server_config: {cert_file: server.crt, key_file: server.key}\nhttp_server_config: {http2: false}\n")
		s.Hosts = []string{"example.com"}
	})
	address := serveTLS(t, r)
	served := func() []byte {
		t.Helper()
		resp, cert, err := askTLS(t, address, "/", nil, "")
		must.That(t, err == nil && resp.StatusCode == 200 && resp.ProtoMajor == 1, "%v, %+v", err, resp)
		return cert
	}
	first := served()
	next := r.pair("server", nil).Certificate[0]
	time.Sleep(1100 * time.Millisecond)
	got := served()
	expect.That(t, !bytes.Equal(got, first) && bytes.Equal(got, next), "the old certificate is served")
	r.write("server.key", "half of a k")
	time.Sleep(1100 * time.Millisecond)
	expect.That(t, bytes.Equal(served(), next), "while the files are being replaced, the last matching pair is not served")
	expect.That(t, strings.Contains(r.log.String(), "rejected, keeping the previous ones"), "the log does not report the files:\n%s", r.log)
}

// TLS, users and client certificates do not begin or end while the console runs.
func TestWebFile_TheKindOfAccessStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(r *rig, s *config.Console) {
			r.pair("server", nil)
			s.WebConfigFile = r.write("web.yml", "")
		})
		for _, text := range []string{
			"basic_auth_users: {ann: " + hash("x") + "}", "tls_server_config: {cert_file: server.crt, key_file: server.key}",
			"tls_server_config: {cert_file: server.crt, key_file: server.key, client_auth_type: VerifyClientCertIfGiven, client_ca_file: server.crt}",
		} {
			r.write("web.yml", text)
			time.Sleep(2 * time.Second)
			r.do(request{})
			expect.That(t, r.reached != "" && r.gate.TLS() == nil, "the loopback is not served any more")
		}
		if !strings.Contains(r.log.String(), "can be changed, but not begun or ended, while the console runs; restart it") {
			t.Errorf("the log does not say why:\n%s", r.log)
		}
	})
}

func TestCertificates_NameTheUser(t *testing.T) {
	var ca, server *tls.Certificate
	r := newRig(t, func(r *rig, s *config.Console) {
		ca = r.pair("ca", nil)
		server = r.pair("server", ca)
		s.WebConfigFile = r.write("web.yml", "tls_server_config: {cert_file: server.crt, key_file: server.key, client_auth_type: VerifyClientCertIfGiven, "+
			"client_ca_file: ca.crt}\n")
		s.Operators, s.Hosts, s.Listen = []string{"ann"}, []string{"example.com"}, "0.0.0.0:9465"
	})
	_ = server
	address := serveTLS(t, r)
	for _, row := range []struct {
		cert   *tls.Certificate
		status int // 0: the handshake fails
		name   string
		role   access.Role
	}{
		{r.pair("ann", ca), 200, "ann", access.Operator}, {r.pair("vic", ca), 200, "vic", access.Viewer},
		{nil, 403, "", ""}, {r.pair("", ca), 403, "", ""}, {r.pair("an\x01n", ca), 403, "", ""},
		{r.pair("ann", r.pair("other ca", nil)), 0, "", ""}, {r.pair("ann", nil), 0, "", ""},
	} {
		r.reached, r.identity = "", access.Identity{}
		resp, _, err := askTLS(t, address, "/", row.cert, basic("ann", "x"))
		if row.status == 0 {
			expect.That(t, err != nil && r.reached == "", "a certificate of another CA is accepted: %v, %+v", resp, r.identity)
			continue
		}
		if err != nil || resp.StatusCode != row.status || r.identity.Name != row.name || r.identity.Role != row.role || resp.Header.Get("WWW-Authenticate") != "" {
			t.Errorf("%+v: %v, %+v to %+v", row, err, resp, r.identity)
		}
	}
}

// A certificate that was not verified names nobody.
func TestCertificates_MustBeVerified(t *testing.T) {
	r := newRig(t, withCertificates)
	resp := r.do(request{tls: true})
	expect.That(t, resp.StatusCode == 403 && r.reached == "", "answers %s to %+v", resp.Status, r.identity)
	for _, kind := range []string{"RequestClientCert", "RequireAnyClientCert"} { // these do not verify
		s := config.Console{Listen: "0.0.0.0:9465", WebConfigFile: r.write("web.yml",
			"tls_server_config: {cert_file: server.crt, key_file: server.key, client_ca_file: server.crt, client_auth_type: "+kind+"}\n")}
		_, err := access.New(access.Options{Settings: s})
		expect.That(t, err != nil && strings.Contains(err.Error(), "everybody could open the console"), "%s is an identity: %v", kind, err)
	}
}
