package config_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/orderclose/orderclose/internal/config"
)

func TestConsoleFromEnviron_ReadsEveryVariable(t *testing.T) {
	crt, key := makePair(t, t.TempDir(), "console")
	base := environ{
		"ORDERCLOSE_CONSOLE_LISTEN": ":443", "ORDERCLOSE_CONSOLE_BASE_PATH": "/shop/orderclose/", "ORDERCLOSE_CONSOLE_ACTIONS": "1",
		"ORDERCLOSE_CONSOLE_HOSTS": "console.example, 10.0.0.5,[fd00:0::5]", "ORDERCLOSE_CONSOLE_TLS_CERT_FILE": crt, "ORDERCLOSE_CONSOLE_TLS_KEY_FILE": key,
		"ORDERCLOSE_CONSOLE_PROXIES": "10.0.0.7, 10.1.2.3/16,fd00::/8, ::ffff:10.0.0.8",
	}
	want := config.Console{
		Listen: ":443", BasePath: "/shop/orderclose", Actions: true, Hosts: []string{"console.example", "10.0.0.5", "fd00::5"},
		Proxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.7/32"), netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00::/8"), netip.MustParsePrefix("10.0.0.8/32")},
	}
	for _, row := range []struct {
		env  environ
		want func(*config.Console)
	}{
		{environ{"ORDERCLOSE_CONSOLE_TOKENS_FILE": "tokens"}, func(c *config.Console) { c.TokensFile = "tokens" }},
		{environ{"ORDERCLOSE_CONSOLE_PASSWORDS_FILE": "passwords", "ORDERCLOSE_CONSOLE_OPERATORS": "ann, 李,"},
			func(c *config.Console) { c.PasswordsFile, c.Operators = "passwords", []string{"ann", "李"} }},
		{environ{"ORDERCLOSE_CONSOLE_USER_HEADER": "X-User", "ORDERCLOSE_CONSOLE_OPERATORS": "ann"},
			func(c *config.Console) { c.UserHeader, c.Operators = "X-User", []string{"ann"} }},
		{environ{"ORDERCLOSE_CONSOLE_USER_HEADER": "X-User", "ORDERCLOSE_CONSOLE_ROLE_HEADER": "X-Role"},
			func(c *config.Console) { c.UserHeader, c.RoleHeader = "X-User", "X-Role" }},
	} {
		env, want := maps.Clone(base), want
		maps.Copy(env, row.env)
		row.want(&want)
		got, err := config.ConsoleFromEnviron(env.lookup)
		if err != nil {
			t.Errorf("%v: %v", row.env, err)
			continue
		}
		if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(config.Console{}, "TLS"), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" || got.TLS == nil {
			t.Errorf("%v: TLS %v (-want +got):\n%s", row.env, got.TLS, diff)
		}
	}
}

func TestConsoleFromEnviron_MissingVariablesMeanTheLoopbackReadOnly(t *testing.T) {
	for _, env := range []environ{{}, {"ORDERCLOSE_CONSOLE_LISTEN": "", "ORDERCLOSE_CONSOLE_BASE_PATH": "/", "ORDERCLOSE_CONSOLE_ACTIONS": "0", "ORDERCLOSE_CONSOLE_HOSTS": " "}} {
		got, err := config.ConsoleFromEnviron(env.lookup)
		if diff := cmp.Diff(config.Console{Listen: "127.0.0.1:9465"}, got); err != nil || diff != "" {
			t.Errorf("error %v (-want +got):\n%s", err, diff)
		}
	}
}

func TestConsoleFromEnviron_ErrorsSayWhatToDoAndShowNoSecret(t *testing.T) {
	const (
		listen, basePath, hosts = "ORDERCLOSE_CONSOLE_LISTEN", "ORDERCLOSE_CONSOLE_BASE_PATH", "ORDERCLOSE_CONSOLE_HOSTS"
		actions, proxies        = "ORDERCLOSE_CONSOLE_ACTIONS", "ORDERCLOSE_CONSOLE_PROXIES"
		cert, private           = "ORDERCLOSE_CONSOLE_TLS_CERT_FILE", "ORDERCLOSE_CONSOLE_TLS_KEY_FILE"
		tokens, passwords       = "ORDERCLOSE_CONSOLE_TOKENS_FILE", "ORDERCLOSE_CONSOLE_PASSWORDS_FILE"
		user, role, operators   = "ORDERCLOSE_CONSOLE_USER_HEADER", "ORDERCLOSE_CONSOLE_ROLE_HEADER", "ORDERCLOSE_CONSOLE_OPERATORS"

		choose = "set " + tokens + ", " + passwords + " or " + user
	)
	crt, _ := makePair(t, t.TempDir(), "console")
	for _, row := range []struct {
		env  environ
		want string
	}{
		{environ{listen: "hunter2"}, listen + " is not host:port; write it such as 127.0.0.1:9465"},
		{environ{listen: "127.0.0.1:70000"}, listen + " is not host:port; write it such as 127.0.0.1:9465"},
		{environ{basePath: "hunter2"}, basePath + " is not a path such as /orderclose; write letters, digits and - . _ ~ after each slash"},
		{environ{basePath: "/a//b"}, basePath + " is not a path such as /orderclose; write letters, digits and - . _ ~ after each slash"},
		{environ{basePath: "/a/../b"}, basePath + " is not a path such as /orderclose; write letters, digits and - . _ ~ after each slash"},
		{environ{basePath: "/a;b"}, basePath + " is not a path such as /orderclose; write letters, digits and - . _ ~ after each slash"},
		{environ{hosts: "a,https://hunter2"}, hosts + ": entry 2 is not the name of a host; write names without scheme and port, such as console.example,10.0.0.7"},
		{environ{hosts: "hunter2:80"}, hosts + ": entry 1 is not the name of a host; write names without scheme and port, such as console.example,10.0.0.7"},
		{environ{hosts: "*.hunter2"}, hosts + ": entry 1 is not the name of a host; write names without scheme and port, such as console.example,10.0.0.7"},
		{environ{actions: "hunter2"}, actions + " is neither 1 nor 0"},
		{environ{actions: "true"}, actions + " is neither 1 nor 0"},
		{environ{proxies: "10.0.0.7,hunter2"}, proxies + ": entry 2 is neither an address nor a range of addresses; write it such as 10.0.0.7 or 10.1.0.0/16"},
		{environ{proxies: "10.0.0.7:80"}, proxies + ": entry 1 is neither an address nor a range of addresses; write it such as 10.0.0.7 or 10.1.0.0/16"},
		{environ{proxies: "10.0.0.7/33"}, proxies + ": entry 1 is neither an address nor a range of addresses; write it such as 10.0.0.7 or 10.1.0.0/16"},
		{environ{proxies: "fe80::1%eth0"}, proxies + ": entry 1 is neither an address nor a range of addresses; write it such as 10.0.0.7 or 10.1.0.0/16"},
		{environ{proxies: "0.0.0.0/0"}, proxies + ": entry 1 has all addresses, so that everybody could claim to be anybody; list the addresses of your proxies only"},
		{environ{proxies: "::/0"}, proxies + ": entry 1 has all addresses, so that everybody could claim to be anybody; list the addresses of your proxies only"},
		{environ{cert: crt}, cert + " and " + private + " belong together; set both, or neither"},
		{environ{private: crt}, cert + " and " + private + " belong together; set both, or neither"},
		{environ{cert: "hunter2", private: crt}, cert + " names a file that cannot be read: no such file or directory; mount it there or unset the variable"},
		{environ{cert: crt, private: crt}, cert + " and " + private +
			" are no pair: tls: found a certificate rather than a key in the PEM for the private key; name a certificate and its own key, both PEM, the key not encrypted"},
		{environ{user: "hunter 2", proxies: "10.0.0.7"}, user + " is not a header that a proxy can set for this purpose; write the name of the header such as X-Forwarded-User"},
		{environ{user: "cookie", proxies: "10.0.0.7"}, user + " is not a header that a proxy can set for this purpose; write the name of the header such as X-Forwarded-User"},
		{environ{user: "x-user", role: "X-User", proxies: "10.0.0.7"}, user + " and " + role + " are the same header; name two"},
		{environ{user: "X-User", role: "a:b", proxies: "10.0.0.7"}, role + " is not a header that a proxy can set for this purpose; write the name of the header such as X-Forwarded-Role"},

		{environ{listen: "0.0.0.0:9465", proxies: "10.0.0.7"}, listen + " is not on the loopback, and everybody could open the console; " + choose + ", or listen on 127.0.0.1:9465"},
		{environ{listen: ":9465", tokens: "hunter2"},
			listen + " is not on the loopback, and the network could read the console; set " + cert + " and " + private + ", or list the proxies that terminate TLS in " + proxies},
		{environ{listen: "console.example:9465"},
			listen + " is not on the loopback, and everybody could open the console; " + choose + ", or listen on 127.0.0.1:9465\n" +
				listen + " is not on the loopback, and the network could read the console; set " + cert + " and " + private + ", or list the proxies that terminate TLS in " + proxies},
		{environ{actions: "1"}, actions + " is 1, but nobody can be an operator without an identity; " + choose},
		{environ{proxies: "127.0.0.1"}, proxies + " is set, and everybody whom a proxy lets in could open the console; " + choose + ", or unset it"},
		{environ{tokens: "hunter2", passwords: "hunter2"}, tokens + " and " + passwords + " are set, but the console has one kind of identity; unset all but one"},
		{environ{user: "X-User"}, user + " is set, but no proxy may set the header; list the proxies' addresses in " + proxies + ", such as 10.0.0.7,10.1.0.0/16"},
		{environ{role: "X-Role"}, role + " is set without " + user + "; set both, or unset it"},
		{environ{user: "X-User", role: "X-Role", operators: "hunter2", proxies: "10.0.0.7"}, role + " and " + operators + " are both set; unset one"},
		{environ{tokens: "hunter2", operators: "hunter2"}, operators + " belongs to " + passwords + " and " + user + "; a file of tokens has the role of each user itself"},
		{environ{passwords: "hunter2", actions: "1"}, actions + " is 1, but all users are viewers; list operators in " + operators},
		{environ{user: "X-User", proxies: "10.0.0.7", actions: "1"}, actions + " is 1, but all users are viewers; list operators in " + operators},
	} {
		got, err := config.ConsoleFromEnviron(row.env.lookup)
		if err == nil {
			t.Errorf("%v: accepted as %v", row.env, got)
		} else if diff := cmp.Diff(row.want, err.Error()); diff != "" {
			t.Errorf("%v (-want +got):\n%s", row.env, diff)
		} else if strings.Contains(err.Error(), "hunter") {
			t.Errorf("%v: the error shows a secret: %v", row.env, err)
		}
	}
}

func TestConsole_KnowsTheLoopback(t *testing.T) {
	for listen, want := range map[string]bool{
		"127.0.0.1:9465": true, "127.8.8.8:1": true, "[::1]:9465": true, "localhost:0": true, "LOCALHOST:0": true, "[::ffff:127.0.0.1]:1": true,
		"0.0.0.0:9465": false, ":9465": false, "[::]:9465": false, "10.0.0.1:1": false, "localhost.example:1": false, "127.0.0.1.example:1": false, "": false, "127.0.0.1": false,
	} {
		if got := (config.Console{Listen: listen}).OnLoopback(); got != want {
			t.Errorf("%q is on the loopback: %v", listen, got)
		}
	}
}

func TestConsole_PrintsWithoutSecrets(t *testing.T) {
	crt, key := makePair(t, t.TempDir(), "console")
	c, err := config.ConsoleFromEnviron(environ{
		"ORDERCLOSE_CONSOLE_LISTEN": "0.0.0.0:9465", "ORDERCLOSE_CONSOLE_BASE_PATH": "/orderclose", "ORDERCLOSE_CONSOLE_TOKENS_FILE": "hunter2",
		"ORDERCLOSE_CONSOLE_TLS_CERT_FILE": crt, "ORDERCLOSE_CONSOLE_TLS_KEY_FILE": key,
	}.lookup)
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("start", "console", c)
	marshaled, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	const want = "listen 0.0.0.0:9465/orderclose, identity ORDERCLOSE_CONSOLE_TOKENS_FILE, TLS true, 0 proxies, actions false"
	if c.String() != want {
		t.Errorf("printed as %s", c)
	}
	for _, text := range []string{fmt.Sprintf("%v %+v %#v %s", c, &c, c, c), log.String(), string(marshaled)} {
		if strings.Contains(text, "hunter2") || strings.Contains(text, "PrivateKey") || !strings.Contains(text, "0.0.0.0:9465") {
			t.Errorf("printed as %s", text)
		}
	}
}

// TestConsole_ARenewedCertificateNeedsNoRestart: a console runs for months, and certificates expire
// meanwhile.
func TestConsole_ARenewedCertificateNeedsNoRestart(t *testing.T) {
	dir := t.TempDir()
	crt, key := makePair(t, dir, "console")
	c, err := config.ConsoleFromEnviron(environ{"ORDERCLOSE_CONSOLE_TLS_CERT_FILE": crt, "ORDERCLOSE_CONSOLE_TLS_KEY_FILE": key}.lookup)
	if err != nil || c.TLS.MinVersion != tls.VersionTLS12 {
		t.Fatalf("%v, %+v", err, c.TLS)
	}
	served := func() string {
		t.Helper()
		pair, err := c.TLS.GetCertificate(nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := x509.ParseCertificate(pair.Certificate[0]); err != nil {
			t.Fatal(err)
		}
		return string(pair.Certificate[0])
	}
	first := served()
	makePair(t, dir, "console")
	second := served()
	if second == first {
		t.Error("the old certificate is served")
	}
	write(t, filepath.Join(dir, "console.key"), "half of a k")
	if served() != second {
		t.Error("while the files are being replaced, the last matching pair is not served")
	}
}
