package access_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"log/slog"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/console/access"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// rig is a console with a Gate.
type rig struct {
	t       *testing.T
	gate    *access.Gate
	handler http.Handler
	dir     string // has the files of the settings
	log     *testkit.LogBuffer

	reached  string          // the handler that the last request reached; "": none
	identity access.Identity // of that request
}

// newRig returns a console on the loopback. change may change the settings.
func newRig(t *testing.T, change func(r *rig, s *config.Console)) *rig {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir(), log: &testkit.LogBuffer{}}
	s := config.Console{Listen: "127.0.0.1:9465"}
	if change != nil {
		change(r, &s)
	}
	r.gate = must.Get(access.New(access.Options{
		Settings: s,
		Refuse: func(w http.ResponseWriter, _ *http.Request, refusal access.Refusal) {
			http.Error(w, refusal.Text, refusal.Status)
		},
		Public: []string{"/static/", "/language"},
		Logger: slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}))(t)
	mux := http.NewServeMux()
	for pattern, handler := range map[string]http.Handler{
		"/":                    r.handle("page"),
		"/static/":             r.handle("static"),
		"POST /language":       r.handle("language"),
		"POST /order":          r.handle("search"),
		"/plans":               r.gate.Action(r.handle("action")),
		"POST /api/v1/":        r.handle("api"),
		"GET /api/v1/":         r.handle("api"),
		"POST /api/v1/actions": r.gate.Action(r.handle("api action")),
	} {
		mux.Handle(pattern, handler)
	}
	r.handler = r.gate.Wrap(http.StripPrefix(s.BasePath, mux))
	return r
}

func (r *rig) handle(name string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		r.reached, r.identity = name, access.From(q.Context())
		fmt.Fprint(w, name)
	})
}

// The identities of a rig.

func anonymous(*rig, *config.Console) {}

func withPasswords(r *rig, s *config.Console) {
	s.WebConfigFile = r.write("web.yml", "basic_auth_users:\n  ann: "+hash("secret of ann")+"\n  vic: "+hash("secret of vic")+"\n")
	s.Operators = []string{"ann"}
}

func withCertificates(r *rig, s *config.Console) {
	r.pair("server", nil)
	s.WebConfigFile = r.write("web.yml", "tls_server_config: {cert_file: server.crt, key_file: server.key, client_auth_type: VerifyClientCertIfGiven, "+
		"client_ca_file: server.crt}\n")
	s.Operators = []string{"ann"}
}

func withProxy(_ *rig, s *config.Console) {
	s.UserHeader, s.Operators = "X-Forwarded-User", []string{"ann"}
	s.Proxies = prefixes("10.0.0.7/32", "127.0.0.9/32")
}

func hash(password string) string {
	h, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
	if err != nil {
		panic(err)
	}
	return string(h)
}

func prefixes(texts ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

func (r *rig) write(name, text string) (path string) {
	r.t.Helper()
	path = filepath.Join(r.dir, name)
	must.Do(r.t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// request is a request to a rig. The zero value of each field is the usual one.
type request struct {
	method, path string
	host         string // default: 127.0.0.1:9465
	from         string // default: 127.0.0.1:50000
	tls          bool
	header       map[string]string
	form         url.Values
	body         string
	cert         string // the common name of the verified client certificate; "": there is none
}

// do sends a request and returns the response.
func (r *rig) do(q request) *http.Response {
	r.t.Helper()
	r.reached, r.identity = "", access.Identity{}
	body := q.body
	if q.form != nil {
		body = q.form.Encode()
	}
	if q.method == "" {
		q.method = "GET"
	}
	if q.path == "" {
		q.path = "/"
	}
	h := httptest.NewRequest(q.method, q.path, strings.NewReader(body))
	h.Host, h.RemoteAddr = "127.0.0.1:9465", "127.0.0.1:50000"
	if q.host != "" {
		h.Host = q.host
	}
	if q.from != "" {
		h.RemoteAddr = q.from
	}
	if q.tls {
		h.TLS = &tls.ConnectionState{}
	}
	if q.cert != "" {
		h.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{{Subject: pkix.Name{CommonName: q.cert}}}}}
	}
	if q.form != nil {
		h.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for name, value := range q.header {
		h.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	r.handler.ServeHTTP(w, h)
	return w.Result()
}

// user is how a user of a rig sends requests.
type user struct {
	role   access.Role
	from   string
	cert   string // the common name of the verified client certificate; "": there is none
	header map[string]string
}

func (u user) request(q request) request {
	q.from, q.cert = u.from, u.cert
	header := map[string]string{}
	maps.Copy(header, u.header)
	maps.Copy(header, q.header)
	q.header = header
	return q
}

// The users with passwords.

func ann() user {
	return user{role: access.Operator, header: map[string]string{"Authorization": basic("ann", "secret of ann")}}
}

func vic() user {
	return user{role: access.Viewer, header: map[string]string{"Authorization": basic("vic", "secret of vic")}}
}

// users are all ways to be a user.
func users() map[string]func(t *testing.T) (*rig, user) {
	as := func(identity func(*rig, *config.Console), u user) func(*testing.T) (*rig, user) {
		return func(t *testing.T) (*rig, user) { return newRig(t, identity), u }
	}
	const proxy = "10.0.0.7:1"
	return map[string]func(t *testing.T) (*rig, user){
		"anonymous":            as(anonymous, user{role: access.Viewer}),
		"basic operator":       as(withPasswords, ann()),
		"basic viewer":         as(withPasswords, vic()),
		"certificate operator": as(withCertificates, user{role: access.Operator, cert: "ann"}),
		"certificate viewer":   as(withCertificates, user{role: access.Viewer, cert: "vic"}),
		"proxy operator":       as(withProxy, user{role: access.Operator, from: proxy, header: map[string]string{"X-Forwarded-User": "ann"}}),
		"proxy viewer":         as(withProxy, user{role: access.Viewer, from: proxy, header: map[string]string{"X-Forwarded-User": "vic"}}),
	}
}

// pair writes NAME.crt and NAME.key, signed by a CA or, if ca is nil, by itself, for the host example.com. It
// returns the pair.
func (r *rig) pair(name string, ca *tls.Certificate) *tls.Certificate {
	r.t.Helper()
	key := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(r.t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name, Organization: []string{"Shop, Inc."}}, DNSNames: []string{"example.com"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), BasicConstraintsValid: true, IsCA: ca == nil,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	parent, signer := template, any(key)
	if ca != nil {
		parent = must.Get(x509.ParseCertificate(ca.Certificate[0]))(r.t)
		signer = ca.PrivateKey
	}
	der := must.Get(x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer))(r.t)
	secret := must.Get(x509.MarshalPKCS8PrivateKey(key))(r.t)
	r.write(name+".crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	r.write(name+".key", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})))
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func basic(name, password string) string {
	r := httptest.NewRequest("GET", "/", nil)
	r.SetBasicAuth(name, password)
	return r.Header.Get("Authorization")
}
