package config_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

func TestConsoleFromEnviron_ReadsEveryVariable(t *testing.T) {
	base := environ{
		"ORDERCLOSE_CONSOLE_LISTEN": ":443", "ORDERCLOSE_CONSOLE_BASE_PATH": "/shop/orderclose/", "ORDERCLOSE_CONSOLE_ACTIONS": "1",
		"ORDERCLOSE_RUNBOOK_URL": "https://wiki.example/runbook", "ORDERCLOSE_CONSOLE_PROMETHEUS": "http://u:p@prometheus:9090/a?job=b&job=c",
		"ORDERCLOSE_CONSOLE_HOSTS": "console.example, 10.0.0.5,[fd00:0::5]", "ORDERCLOSE_CONSOLE_PROXIES": "10.0.0.7, 10.1.2.3/16,fd00::/8, ::ffff:10.0.0.8",
	}
	want := config.Console{
		Listen: ":443", BasePath: "/shop/orderclose", Actions: true, Runbook: "https://wiki.example/runbook", Prometheus: "http://u:p@prometheus:9090/a?job=b&job=c", Hosts: []string{"console.example", "10.0.0.5", "fd00::5"},
		Proxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.7/32"), netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00::/8"), netip.MustParsePrefix("10.0.0.8/32")},
	}
	for _, row := range []struct {
		env  environ
		want func(*config.Console)
	}{
		{environ{"ORDERCLOSE_CONSOLE_WEB_CONFIG_FILE": "web.yml", "ORDERCLOSE_CONSOLE_OPERATORS": "ann, 李,"},
			func(c *config.Console) { c.WebConfigFile, c.Operators = "web.yml", []string{"ann", "李"} }},
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
		diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }))
		expect.That(t, diff == "", "%v (-want +got):\n%s", row.env, diff)
	}
}

func TestConsoleFromEnviron_MissingVariablesMeanTheLoopbackReadOnly(t *testing.T) {
	for _, env := range []environ{{}, {"ORDERCLOSE_CONSOLE_LISTEN": "", "ORDERCLOSE_CONSOLE_BASE_PATH": "/", "ORDERCLOSE_CONSOLE_ACTIONS": "0", "ORDERCLOSE_CONSOLE_HOSTS": " "}} {
		got, err := config.ConsoleFromEnviron(env.lookup)
		diff := cmp.Diff(config.Console{Listen: "127.0.0.1:9465"}, got)
		expect.That(t, err == nil && diff == "", "error %v (-want +got):\n%s", err, diff)
	}
}

func TestConsoleFromEnviron_ErrorsSayWhatToDoAndShowNoSecret(t *testing.T) {
	const (
		listen, basePath, hosts = "ORDERCLOSE_CONSOLE_LISTEN", "ORDERCLOSE_CONSOLE_BASE_PATH", "ORDERCLOSE_CONSOLE_HOSTS"
		actions, proxies        = "ORDERCLOSE_CONSOLE_ACTIONS", "ORDERCLOSE_CONSOLE_PROXIES"
		web, runbook            = "ORDERCLOSE_CONSOLE_WEB_CONFIG_FILE", "ORDERCLOSE_RUNBOOK_URL"
		prometheus              = "ORDERCLOSE_CONSOLE_PROMETHEUS"
		user, role, operators   = "ORDERCLOSE_CONSOLE_USER_HEADER", "ORDERCLOSE_CONSOLE_ROLE_HEADER", "ORDERCLOSE_CONSOLE_OPERATORS"

		noPrometheus = prometheus + " is not the address of a Prometheus with labels; write it such as http://prometheus:9090?job=orderclose"

		choose = "write basic_auth_users or a client CA to the file of " + web + ", or set " + user
	)
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
		{environ{runbook: "hunter2"}, runbook + " is not the address of a page; write it such as https://wiki.example/orderclose/runbook, without # and a section"},
		{environ{runbook: "javascript://hunter2/x"}, runbook + " is not the address of a page; write it such as https://wiki.example/orderclose/runbook, without # and a section"},
		{environ{runbook: "https://hunter2/x#y"}, runbook + " is not the address of a page; write it such as https://wiki.example/orderclose/runbook, without # and a section"},
		{environ{prometheus: "hunter2:9090"}, noPrometheus},
		{environ{prometheus: "http://hunter2:9090?a-b=c"}, noPrometheus},
		{environ{prometheus: "http://hunter2:9090?a=%"}, noPrometheus},
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
		{environ{user: "hunter 2", proxies: "10.0.0.7"}, user + " is not a header that a proxy can set for this purpose; write the name of the header such as X-Forwarded-User"},
		{environ{user: "cookie", proxies: "10.0.0.7"}, user + " is not a header that a proxy can set for this purpose; write the name of the header such as X-Forwarded-User"},
		{environ{user: "x-user", role: "X-User", proxies: "10.0.0.7"}, user + " and " + role + " are the same header; name two"},
		{environ{user: "X-User", role: "a:b", proxies: "10.0.0.7"}, role + " is not a header that a proxy can set for this purpose; write the name of the header such as X-Forwarded-Role"},

		{environ{listen: "0.0.0.0:9465", proxies: "10.0.0.7"}, listen + " is not on the loopback, and everybody could open the console; " + choose + ", or listen on 127.0.0.1:9465"},
		{environ{listen: "console.example:9465"},
			listen + " is not on the loopback, and everybody could open the console; " + choose + ", or listen on 127.0.0.1:9465\n" +
				listen + " is not on the loopback, and the network could read the console; write tls_server_config to the file of " + web + ", or list the proxies that terminate TLS in " + proxies},
		{environ{actions: "1"}, actions + " is 1, but nobody can be an operator without an identity; " + choose},
		{environ{proxies: "127.0.0.1"}, proxies + " is set, and everybody whom a proxy lets in could open the console; " + choose + ", or unset it"},
		{environ{user: "X-User"}, user + " is set, but no proxy may set the header; list the proxies' addresses in " + proxies + ", such as 10.0.0.7,10.1.0.0/16"},
		{environ{role: "X-Role"}, role + " is set without " + user + "; set both, or unset it"},
		{environ{user: "X-User", role: "X-Role", operators: "hunter2", proxies: "10.0.0.7"}, role + " and " + operators + " are both set; unset one"},
		{environ{operators: "hunter2"}, operators + " is set, but nobody is known by name; " + choose},
		{environ{web: "hunter2", actions: "1"}, actions + " is 1, but all users are viewers; list operators in " + operators},
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
		expect.Equal(t, (config.Console{Listen: listen}).OnLoopback(), want, "%q is on the loopback", listen)
	}
}

func TestConsole_PrintsWithoutSecrets(t *testing.T) {
	c := must.Get(config.ConsoleFromEnviron(environ{
		"ORDERCLOSE_CONSOLE_LISTEN": "0.0.0.0:9465", "ORDERCLOSE_CONSOLE_BASE_PATH": "/orderclose", "ORDERCLOSE_CONSOLE_WEB_CONFIG_FILE": "hunter2",
	}.lookup))(t)
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("start", "console", c)
	marshaled := must.Get(json.Marshal(c))(t)
	const want = "listen 0.0.0.0:9465/orderclose, access by ORDERCLOSE_CONSOLE_WEB_CONFIG_FILE, 0 proxies, actions false"
	expect.Equal(t, fmt.Sprint(c), want, "printed as %s", c)
	for _, text := range []string{fmt.Sprintf("%v %+v %#v %s", c, &c, c, c), log.String(), string(marshaled)} {
		expect.That(t, !strings.Contains(text, "hunter2") && strings.Contains(text, "0.0.0.0:9465"), "printed as %s", text)
	}
}

func TestLoadNotify_ReadsTheExample(t *testing.T) {
	c := must.Get(config.LoadNotify("../../deploy/alerts/notify.yaml"))(t)
	team, sms, call := c.Receivers["team"], c.Receivers["sms"], c.Receivers["call"]
	if team.DingTalk == nil || team.HTTP != nil || team.URLFile != "/run/secrets/dingtalk_url" || team.SecretFile == "" || team.Limit != 4000 {
		t.Errorf("team: %+v", team)
	}
	if sms.DingTalk != nil || sms.HTTP == nil || sms.URL == "" || sms.Limit != 300 || sms.HTTP.Method != "POST" || sms.HTTP.Accepted == nil || len(sms.HTTP.Headers) != 2 {
		t.Errorf("sms: %+v", sms)
	}
	if call.Limit != 500 || !strings.HasPrefix(call.HTTP.Body.Text, "key={{") || !strings.HasSuffix(call.HTTP.Body.At, ": receivers.call.http.body") {
		t.Errorf("call: %+v", call)
	}
}

func TestParseNotify_ReportsEveryProblemWithItsPosition(t *testing.T) {
	const valid = "receivers: {a: {dingtalk: {url: http://x, secret_file: f}}}"
	must.Get(config.ParseNotify("n", []byte(valid)))(t)
	for _, c := range []struct {
		file string
		want []string
	}{
		{"", []string{"n:1:1: no receiver; name one below receivers, with dingtalk or http"}},
		{"receivers:\n", []string{"n:1:11: no receiver; name one below receivers, with dingtalk or http"}},
		{"recievers: {a: 1}\n", []string{`n:1:1: unknown key "recievers"; did you mean receivers?`}},
		{"receivers:\n  a b:\n    http: {}\n", []string{`n:3:5: receivers.a b: "a b" cannot be the end of a URL; use a-z, A-Z, 0-9, underscore and hyphen only`}},
		{"receivers:\n  a: {}\n", []string{"n:2:6: receivers.a: want either dingtalk or http; write one of them"}},
		{"receivers: {a: {dingtalk: {url: http://x, secret_file: f}, http: {url: http://x, body: x}}}", []string{
			"n:1:16: receivers.a: want either dingtalk or http; write one of them"}},
		{"receivers:\n  a:\n    dingtalk: {url: http://x}\n", []string{
			"n:3:15: receivers.a.dingtalk.secret_file: is missing; create the robot with the security setting signature, and name a file that holds its secret"}},
		{"receivers:\n  a:\n    dingtalk: {secret_file: f}\n", []string{
			"n:3:15: receivers.a.dingtalk.url: want either url or url_file; write one of them; a URL that holds a token belongs into a file"}},
		{"receivers:\n  a:\n    dingtalk: {url: http://x, url_file: f, secret_file: f, at: [13800000000, bob, '+86-138', all]}\n", []string{
			`n:3:65: receivers.a.dingtalk.at[0]: 13800000000 is read as a value other than text; write it in quotes, "13800000000"`,
			`n:3:78: receivers.a.dingtalk.at[1]: "bob" is not a mobile number; write it in quotes, such as "13800000000", or write all`}},
		{"receivers:\n  a:\n    dingtalk: {url: http://x, secret_file: f, limit: 4001}\n", []string{
			"n:3:54: receivers.a.dingtalk.limit: 4001 is out of range; write one from 20 to 4000"}},
		{"receivers:\n  a:\n    http: {url: http://x}\n", []string{
			`n:3:11: receivers.a.http.body: is missing; write what the provider expects, such as '{"text": {{ json .Text }}}'`}},
		{"receivers:\n  a:\n    http: {url: x, body: b, method: GET, accepted: '(', limit: 1, header: {}}\n", []string{
			"n:3:17: receivers.a.http.url: it is not http://host/path or https://host/path; write it such as https://shop.example/orderclose/close",
			`n:3:37: receivers.a.http.method: "GET" is neither POST nor PUT; write POST or PUT`,
			"n:3:52: receivers.a.http.accepted: this is not a regular expression: error parsing regexp: missing closing ): `(`; write one, such as '\"code\": *0\\b'",
			"n:3:64: receivers.a.http.limit: 1 is out of range; write one from 20 to 20000",
			`n:3:67: receivers.a.http: unknown key "header"; did you mean headers?`}},
	} {
		_, err := config.ParseNotify("n", []byte(c.file))
		var problems config.Problems
		if !errors.As(err, &problems) {
			t.Errorf("%q: %v", c.file, err)
			continue
		}
		expect.Same(t, err.Error(), strings.Join(c.want, "\n"), "%q", c.file)
	}
}

func TestReadSecret_NeverQuotesTheContent(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret")
	for content, want := range map[string]string{
		strings.Repeat("s3", 32<<10) + "x": "larger than 64 KiB", "s3cret\r\n": "", "": file, "\n": file, "s3cret\ns3cret": file, "s3\x00cret": file,
	} {
		must.Do(t, os.WriteFile(file, []byte(content), 0o600))
		value, err := config.ReadSecret(file)
		switch {
		case want == "" && (err != nil || value != "s3cret"):
			t.Errorf("%q: %q, %v", content, value, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3")):
			t.Errorf("%q: %q, %v", content, value, err)
		}
	}
}

func TestPlainRedis_NamesAPasswordThatANetworkSees(t *testing.T) {
	for url, want := range map[string]bool{
		"redis://u:p@redis.internal:6379/0": true, "redis://:p@10.0.0.7": true,
		"redis://redis.internal": false, "redis://u:p@127.0.0.1": false, "redis://u:p@localhost": false, "rediss://u:p@redis.internal": false, "unix:///run/redis.sock": false,
	} {
		expect.Equal(t, config.PlainRedis(url), want, "%s", url)
	}
}
