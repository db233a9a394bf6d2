package environ_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

type vars map[string]string

func (e vars) lookup(name string) (string, bool) {
	v, ok := e[name]
	return v, ok
}

func TestRead_ReadsEveryVariable(t *testing.T) {
	got, err := environ.Read(vars{
		"ORDERCLOSE_KAFKA_BROKERS": "a:9092, [::1]:9093",
		"ORDERCLOSE_DB_DSN":        "user:pw@tcp(db:3306)/shop",
		"ORDERCLOSE_REDIS_URL":     "rediss://:pw@redis:6379/1",
		"ORDERCLOSE_LISTEN":        ":9000",
	}.lookup)
	want := environ.Servers{
		Brokers:  []string{"a:9092", "[::1]:9093"},
		DSN:      "user:pw@tcp(db:3306)/shop",
		RedisURL: "rediss://:pw@redis:6379/1",
		Listen:   ":9000",
	}
	diff := cmp.Diff(want, got)
	expect.That(t, err == nil && diff == "", "error %v (-want +got):\n%s", err, diff)
}

func TestUnknownVariables_AreNamedWithTheNearestKnownOne(t *testing.T) {
	got := environ.UnknownVariables([]string{
		"ORDERCLOSE_WEBHOOK_SECRETS=secret", "ORDERCLOSE_KAFKA_BROKER=b:1", "ORDERCLOSE_LISTEN_FILE=f", "ORDERCLOSE_COLOUR=red",
		"ORDERCLOSE_DB_DSN_FILE=f", "ORDERCLOSE_LISTEN=:1", "PATH=/bin", "ORDERCLOSE_RELAY_SERVICE_HOST=10.0.0.1", "ORDERCLOSE_RELAY_PORT_9464_TCP_ADDR=10.0.0.1",
		"ORDERCLOSE_RELAY_SERVICE_PORT_METRICS=1",
	})
	want := []string{
		"ORDERCLOSE_COLOUR is not a variable of this program and has no effect",
		"ORDERCLOSE_KAFKA_BROKER is not a variable of this program and has no effect; did you mean ORDERCLOSE_KAFKA_BROKERS?",
		"ORDERCLOSE_LISTEN_FILE is not a variable of this program and has no effect",
		"ORDERCLOSE_WEBHOOK_SECRETS is not a variable of this program and has no effect; did you mean ORDERCLOSE_WEBHOOK_SECRET?",
	}
	expect.Same(t, got, want, "warnings")
	sources := must.Get(filepath.Glob("*.go"))(t)
	for _, source := range sources {
		text := must.Get(os.ReadFile(source))(t)
		for _, found := range regexp.MustCompile(`Env\w+ += "(ORDERCLOSE_\w+)"`).FindAllStringSubmatch(string(text), -1) {
			unknown := environ.UnknownVariables([]string{found[1] + "=x"})
			expect.That(t, len(unknown) <= 0, "%s: %v", source, unknown)
		}
	}
}

func TestOpenSecrets_AreFilesThatOtherUsersMayReadOrWrite(t *testing.T) {
	file := func(mode os.FileMode) string {
		path := filepath.Join(t.TempDir(), "file")
		write(t, path, "hunter2")
		must.Do(t, os.Chmod(path, mode))
		return path
	}
	got := environ.OpenSecrets([]string{
		"ORDERCLOSE_DB_DSN_FILE=" + file(0o666), "ORDERCLOSE_KAFKA_TLS_KEY_FILE=" + file(0o604), "ORDERCLOSE_REDIS_URL_FILE=" + file(0o602),
		"ORDERCLOSE_KAFKA_SASL_TOKEN=file:" + file(0o604), "ORDERCLOSE_KAFKA_SASL_TOKEN=command:" + file(0o666), "ORDERCLOSE_PAYMENT_SECRET_FILE=" + file(0o400),
		"ORDERCLOSE_HTTP_SECRET_FILE=/no/such",
		"ORDERCLOSE_DB_TLS_CA_FILE=" + file(0o644), "ORDERCLOSE_DB_TLS_CERT_FILE=" + file(0o644),
		"ORDERCLOSE_NO_SUCH_FILE=" + file(0o666), "ORDERCLOSE_DB_DSN=" + file(0o666), "OTHER_FILE=" + file(0o666),
	})
	want := []string{
		"ORDERCLOSE_DB_DSN_FILE names a file of mode 0666: every user of the machine may read or write it; chmod o= FILE",
		"ORDERCLOSE_KAFKA_SASL_TOKEN names a file of mode 0604: every user of the machine may read or write it; chmod o= FILE",
		"ORDERCLOSE_KAFKA_TLS_KEY_FILE names a file of mode 0604: every user of the machine may read or write it; chmod o= FILE",
		"ORDERCLOSE_REDIS_URL_FILE names a file of mode 0602: every user of the machine may read or write it; chmod o= FILE",
	}
	expect.Same(t, got, want, "what was read")
}

func TestRead_MissingVariablesAreEmpty(t *testing.T) {
	got, err := environ.Read(vars{"ORDERCLOSE_DB_DSN": "", "ORDERCLOSE_DB_DSN_FILE": ""}.lookup)
	want := environ.Servers{Listen: "127.0.0.1:9464"}
	diff := cmp.Diff(want, got)
	expect.That(t, err == nil && diff == "", "error %v (-want +got):\n%s", err, diff)
}

func TestRead_ReadsSecretsFromFilesWithoutTheLastNewline(t *testing.T) {
	env := vars{}
	for _, name := range []string{environ.EnvDSN, environ.EnvRedis} {
		env[name+"_FILE"] = filepath.Join(t.TempDir(), "secret")
	}
	write(t, env[environ.EnvDSN+"_FILE"], "pw with space \r\n")
	write(t, env[environ.EnvRedis+"_FILE"], "redis://b:2")
	got, err := environ.Read(env.lookup)
	want := environ.Servers{DSN: "pw with space ", RedisURL: "redis://b:2", Listen: environ.DefaultListen}
	diff := cmp.Diff(want, got)
	expect.That(t, err == nil && diff == "", "error %v (-want +got):\n%s", err, diff)
}

func TestRead_ErrorsNameTheVariableAndShowNoSecret(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty")
	write(t, empty, "\n")
	large := filepath.Join(t.TempDir(), "large")
	write(t, large, strings.Repeat("hunter2 ", 8<<10)+"x")
	for _, row := range []struct {
		env  vars
		want string
	}{
		{vars{"ORDERCLOSE_INSTANCE": "hunter2 relay"},
			"ORDERCLOSE_INSTANCE has other characters than letters, digits, '.', '_' and '-', or more than 100; write it such as host1-relay"},
		{vars{"ORDERCLOSE_INSTANCE": strings.Repeat("hunter2", 15)},
			"ORDERCLOSE_INSTANCE has other characters than letters, digits, '.', '_' and '-', or more than 100; write it such as host1-relay"},
		{vars{"ORDERCLOSE_HTTP_SECRET": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw,hunter2", "ORDERCLOSE_PAYMENT_SECRET": ","},
			"ORDERCLOSE_HTTP_SECRET: secret 2 is not whsec_ and 24 to 64 bytes in base64; make one with: echo whsec_$(openssl rand -base64 32)\n" +
				"ORDERCLOSE_PAYMENT_SECRET: there is no secret; make one with: echo whsec_$(openssl rand -base64 32)"},
		{vars{"ORDERCLOSE_DB_DSN": "hunter2", "ORDERCLOSE_DB_DSN_FILE": "x"}, "ORDERCLOSE_DB_DSN and ORDERCLOSE_DB_DSN_FILE are both set; unset one"},
		{vars{"ORDERCLOSE_DB_DSN_FILE": "no/such"},
			"ORDERCLOSE_DB_DSN_FILE names a file that cannot be read: no such file or directory; mount the secret there or unset the variable"},
		{vars{"ORDERCLOSE_DB_DSN_FILE": "user:hunter2@tcp(db:3306)/shop"},
			"ORDERCLOSE_DB_DSN_FILE names a file that cannot be read: no such file or directory; mount the secret there or unset the variable"},
		{vars{"ORDERCLOSE_DB_DSN_FILE": empty}, "ORDERCLOSE_DB_DSN_FILE: the file " + empty + " is empty; write the value into it"},
		{vars{"ORDERCLOSE_DB_DSN_FILE": large},
			"ORDERCLOSE_DB_DSN_FILE names a file that cannot be read: it is larger than 64 KiB; mount the secret there or unset the variable"},
		{vars{"ORDERCLOSE_KAFKA_BROKERS": "a:1,hunter2"},
			"ORDERCLOSE_KAFKA_BROKERS: entry 2 is not host:port; write it such as 127.0.0.1:9092,127.0.0.1:9093"},
		{vars{"ORDERCLOSE_KAFKA_BROKERS": "u:hunter2@a:1"},
			"ORDERCLOSE_KAFKA_BROKERS: entry 1 is not host:port; write it such as 127.0.0.1:9092,127.0.0.1:9093"},
		{vars{"ORDERCLOSE_KAFKA_BROKERS": "a:1,"}, "ORDERCLOSE_KAFKA_BROKERS: entry 2 is not host:port; write it such as 127.0.0.1:9092,127.0.0.1:9093"},
		{vars{"ORDERCLOSE_KAFKA_BROKERS": ":9092"}, "ORDERCLOSE_KAFKA_BROKERS: entry 1 is not host:port; write it such as 127.0.0.1:9092,127.0.0.1:9093"},
		{vars{"ORDERCLOSE_REDIS_URL": "redis://:hunter2%zz@a:1"},
			"ORDERCLOSE_REDIS_URL is not a Redis URL; write it such as redis://127.0.0.1:6379/0 (special letters of a password %-escaped)"},
		{vars{"ORDERCLOSE_REDIS_URL": "redis://:16#hunter2@a:1"}, // 16 would be a port
			"ORDERCLOSE_REDIS_URL is not a Redis URL; write it such as redis://127.0.0.1:6379/0 (special letters of a password %-escaped)"},
		{vars{"ORDERCLOSE_REDIS_URL": "hunter2@a:1"},
			"ORDERCLOSE_REDIS_URL is not a Redis URL; write it such as redis://127.0.0.1:6379/0 (special letters of a password %-escaped)"},
		{vars{"ORDERCLOSE_REDIS_URL": "unix+cluster://:hunter2@/x"},
			"ORDERCLOSE_REDIS_URL is not a Redis URL; write it such as redis://127.0.0.1:6379/0 (special letters of a password %-escaped)"},
		{vars{"ORDERCLOSE_LISTEN": "9464", "ORDERCLOSE_REDIS_URL": "x"},
			"ORDERCLOSE_REDIS_URL is not a Redis URL; write it such as redis://127.0.0.1:6379/0 (special letters of a password %-escaped)\n" +
				"ORDERCLOSE_LISTEN is not host:port; write it such as 127.0.0.1:9464"},
		{vars{"ORDERCLOSE_LISTEN": "a:70000"}, "ORDERCLOSE_LISTEN is not host:port; write it such as 127.0.0.1:9464"},
	} {
		got, err := environ.Read(row.env.lookup)
		if err == nil {
			t.Errorf("%v: accepted as %#v", row.env, got)
		} else if diff := cmp.Diff(row.want, err.Error()); diff != "" {
			t.Errorf("%v (-want +got):\n%s", row.env, diff)
		} else if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%v: the error shows a secret: %v", row.env, err)
		}
	}
}

func TestRequire_NamesEveryMissingVariable(t *testing.T) {
	s := environ.Servers{Brokers: []string{"a:1"}}
	expect.Is(t, s.Require(environ.EnvBrokers), nil, "the brokers are set")
	err := s.Require(environ.EnvBrokers, environ.EnvDSN, environ.EnvRedis)
	want := `ORDERCLOSE_DB_DSN is not set; export it, such as ORDERCLOSE_DB_DSN="user:password@tcp(127.0.0.1:3306)/shop" (for PostgreSQL ` +
		`postgres://user:password@127.0.0.1:5432/shop), or name a file that holds it in ORDERCLOSE_DB_DSN_FILE
ORDERCLOSE_REDIS_URL is not set; export it, such as ORDERCLOSE_REDIS_URL="redis://127.0.0.1:6379/0", or name a file that holds it in ORDERCLOSE_REDIS_URL_FILE`
	expect.That(t, err != nil && err.Error() == want, "got\n%v\nwant\n%s", err, want)
}

func TestServers_PrintWithoutSecrets(t *testing.T) {
	s := environ.Servers{Brokers: []string{"a:1"}, DSN: "u:hunter2@tcp(db)/shop", RedisURL: "redis://:hunter2@r:1", Listen: ":1"}
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("start", "servers", s)
	slog.New(slog.NewTextHandler(&log, nil)).Info("start", "servers", &s)
	marshaled := must.Get(json.Marshal(s))(t)
	for _, text := range []string{fmt.Sprint(s), fmt.Sprintf("%+v %#v %s %q", s, s, &s, s), log.String(), string(marshaled)} {
		expect.That(t, !strings.Contains(text, "hunter2") && strings.Contains(text, "a:1"), "printed as %s", text)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	must.Do(t, os.WriteFile(path, []byte(text), 0o600))
}

func TestRead_ReadsSeveralSecrets(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secrets")
	write(t, file, "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oDc2FsdHNhbHQ=\nwhsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n")
	got, err := environ.Read(vars{
		"ORDERCLOSE_HTTP_SECRET":         "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw, whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oDc2FsdHNhbHQ=",
		"ORDERCLOSE_PAYMENT_SECRET_FILE": file,
	}.lookup)
	want := environ.Secrets{
		HTTP:    []string{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oDc2FsdHNhbHQ="},
		Payment: []string{"whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oDc2FsdHNhbHQ=", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"},
	}
	diff := cmp.Diff(want, got.Secrets)
	expect.That(t, err == nil && diff == "", "%v (-want +got):\n%s", err, diff)
	shown := fmt.Sprintf("%v %+v %#v %s", got, got, got, got)
	expect.That(t, !strings.Contains(shown, "whsec_"), "it shows a secret: %s", shown)
	expect.NoError(t, got.Require(environ.EnvHTTPSecret, environ.EnvPaymentSecret))
	err = (environ.Servers{}).Require(environ.EnvHTTPSecret)
	expect.That(t, err != nil && strings.HasPrefix(err.Error(), "ORDERCLOSE_HTTP_SECRET is not set"), "without a secret: %v", err)
}

func TestRead_ReadsOnlyTheNamedVariables(t *testing.T) {
	env := vars{"ORDERCLOSE_KAFKA_BROKERS": "a:1", "ORDERCLOSE_REDIS_URL": "x", "ORDERCLOSE_LISTEN": "x",
		"ORDERCLOSE_HTTP_SECRET": "x", "ORDERCLOSE_DB_DSN_FILE": "no/such"}
	got, err := environ.Read(env.lookup, environ.EnvBrokers)
	diff := cmp.Diff(environ.Servers{Brokers: []string{"a:1"}, Listen: environ.DefaultListen}, got)
	expect.That(t, err == nil && diff == "", "error %v (-want +got):\n%s", err, diff)
	for _, name := range []string{environ.EnvRedis, environ.EnvListen, environ.EnvHTTPSecret, environ.EnvDSN} {
		_, err := environ.Read(env.lookup, environ.EnvBrokers, name)
		expect.That(t, err != nil, "a wrong %s is accepted although it is used", name)
	}
	delete(env, "ORDERCLOSE_KAFKA_BROKERS")
	env["ORDERCLOSE_KAFKA_TLS_CA_FILE"] = "no/such"
	if _, err := environ.Read(env.lookup, environ.EnvBrokers); err == nil {
		t.Error("wrong security settings are accepted although Kafka is used")
	}
}

// The format of the log is that of the flag, or else of the variable.
func TestLogHandler_TakesTheFormat(t *testing.T) {
	lookup := func(v string) func(string) (string, bool) { return func(string) (string, bool) { return v, v != "" } }
	for _, c := range []struct{ flag, variable, says, fails string }{
		{"", "", "level=INFO msg=x", ""}, {"json", "", `"msg":"x"`, ""}, {"", "json", `"msg":"x"`, ""}, {"text", "json", "msg=x", ""},
		{"xml", "", "", `--log-format is "xml"`}, {"", "xml", "", environ.EnvLogFormat + ` is "xml"`},
	} {
		var out strings.Builder
		h, err := environ.LogHandler(&out, c.flag, lookup(c.variable), nil)
		if c.fails != "" {
			expect.Says(t, err, c.fails, "%+v", c)
			continue
		}
		must.Do(t, err)
		slog.New(h).Info("x")
		expect.That(t, strings.Contains(out.String(), c.says), "%+v: %s", c, out.String())
	}
}

func TestReadConsole_ReadsEveryVariable(t *testing.T) {
	base := vars{
		"ORDERCLOSE_CONSOLE_LISTEN": ":443", "ORDERCLOSE_CONSOLE_BASE_PATH": "/shop/orderclose/",
		"ORDERCLOSE_RUNBOOK_URL":   "https://wiki.example/runbook",
		"ORDERCLOSE_CONSOLE_HOSTS": "console.example, 10.0.0.5,[fd00:0::5]", "ORDERCLOSE_CONSOLE_PROXIES": "10.0.0.7, 10.1.2.3/16,fd00::/8, ::ffff:10.0.0.8",
	}
	want := environ.Console{
		Listen: ":443", BasePath: "/shop/orderclose", Runbook: "https://wiki.example/runbook",
		Hosts: []string{"console.example", "10.0.0.5", "fd00::5"},
		Proxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.7/32"), netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00::/8"),
			netip.MustParsePrefix("10.0.0.8/32")},
	}
	for _, row := range []struct {
		env  vars
		want func(*environ.Console)
	}{
		{vars{"ORDERCLOSE_CONSOLE_USER_HEADER": "X-User", "ORDERCLOSE_CONSOLE_OPERATORS": "ann, 李,"},
			func(c *environ.Console) { c.UserHeader, c.Operators = "X-User", []string{"ann", "李"} }},
		{vars{"ORDERCLOSE_CONSOLE_USER_HEADER": "X-User", "ORDERCLOSE_CONSOLE_OPERATORS": "header:X-Role"},
			func(c *environ.Console) { c.UserHeader, c.RoleHeader = "X-User", "X-Role" }},
	} {
		env, want := maps.Clone(base), want
		maps.Copy(env, row.env)
		row.want(&want)
		got, err := environ.ReadConsole(env.lookup)
		if err != nil {
			t.Errorf("%v: %v", row.env, err)
			continue
		}
		expect.Equal(t, cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })), "", "%v (-want +got):\n", row.env)
	}
}

func TestReadConsole_MissingVariablesMeanTheLoopbackReadOnly(t *testing.T) {
	for _, env := range []vars{{}, {"ORDERCLOSE_CONSOLE_LISTEN": "", "ORDERCLOSE_CONSOLE_BASE_PATH": "/", "ORDERCLOSE_CONSOLE_HOSTS": " "}} {
		got, err := environ.ReadConsole(env.lookup)
		diff := cmp.Diff(environ.Console{Listen: "127.0.0.1:9465"}, got)
		expect.That(t, err == nil && diff == "", "error %v (-want +got):\n%s", err, diff)
	}
}

func TestReadConsole_ErrorsSayWhatToDoAndShowNoSecret(t *testing.T) {
	const (
		listen, basePath, hosts = "ORDERCLOSE_CONSOLE_LISTEN", "ORDERCLOSE_CONSOLE_BASE_PATH", "ORDERCLOSE_CONSOLE_HOSTS"
		proxies                 = "ORDERCLOSE_CONSOLE_PROXIES"
		runbook                 = "ORDERCLOSE_RUNBOOK_URL"
		user, operators         = "ORDERCLOSE_CONSOLE_USER_HEADER", "ORDERCLOSE_CONSOLE_OPERATORS"

		everybody = listen + " is not on the loopback, and everybody could open the console; let a proxy sign users in, and set " + proxies + " and " + user +
			", or listen on 127.0.0.1:9465"
		nobody = operators + " is set, but nobody is known by name; set " + user
	)
	for _, row := range []struct {
		env  vars
		want string
	}{
		{vars{listen: "hunter2"}, listen + " is not host:port; write it such as 127.0.0.1:9465"},
		{vars{listen: "127.0.0.1:70000"}, listen + " is not host:port; write it such as 127.0.0.1:9465"},
		{vars{basePath: "hunter2"}, basePath + " is not a path such as /orderclose; write letters, digits and - . _ ~ after each slash"},
		{vars{basePath: "/a//b"}, basePath + " is not a path such as /orderclose; write letters, digits and - . _ ~ after each slash"},
		{vars{basePath: "/a/../b"}, basePath + " is not a path such as /orderclose; write letters, digits and - . _ ~ after each slash"},
		{vars{basePath: "/a;b"}, basePath + " is not a path such as /orderclose; write letters, digits and - . _ ~ after each slash"},
		{vars{runbook: "hunter2"}, runbook + " is not the address of a page; write it such as https://wiki.example/orderclose/runbook, without # and a section"},
		{vars{runbook: "javascript://hunter2/x"}, runbook + " is not the address of a page; write it such as https://wiki.example/orderclose/runbook, " +
			"without # and a section"},
		{vars{runbook: "https://hunter2/x#y"}, runbook + " is not the address of a page; write it such as https://wiki.example/orderclose/runbook, " +
			"without # and a section"},
		{vars{hosts: "a,https://hunter2"}, hosts + ": entry 2 is not the name of a host; write names without scheme and port, such as console.example,10.0.0.7"},
		{vars{hosts: "hunter2:80"}, hosts + ": entry 1 is not the name of a host; write names without scheme and port, such as console.example,10.0.0.7"},
		{vars{hosts: "*.hunter2"}, hosts + ": entry 1 is not the name of a host; write names without scheme and port, such as console.example,10.0.0.7"},
		{vars{proxies: "10.0.0.7,hunter2"}, proxies + ": entry 2 is neither an address nor a range of addresses; write it such as 10.0.0.7 or 10.1.0.0/16"},
		{vars{proxies: "10.0.0.7:80"}, proxies + ": entry 1 is neither an address nor a range of addresses; write it such as 10.0.0.7 or 10.1.0.0/16"},
		{vars{proxies: "10.0.0.7/33"}, proxies + ": entry 1 is neither an address nor a range of addresses; write it such as 10.0.0.7 or 10.1.0.0/16"},
		{vars{proxies: "fe80::1%eth0"}, proxies + ": entry 1 is neither an address nor a range of addresses; write it such as 10.0.0.7 or 10.1.0.0/16"},
		{vars{proxies: "0.0.0.0/0"}, proxies + ": entry 1 has all addresses, so that everybody could claim to be anybody; list the " +
			"addresses of your proxies only"},
		{vars{proxies: "::/0"}, proxies + ": entry 1 has all addresses, so that everybody could claim to be anybody; list the addresses of your proxies only"},
		{vars{user: "hunter 2", proxies: "10.0.0.7"}, user + " is not a header that a proxy can set for this purpose; write the name of the header " +
			"such as X-Forwarded-User"},
		{vars{user: "cookie", proxies: "10.0.0.7"}, user + " is not a header that a proxy can set for this purpose; write the name of the header " +
			"such as X-Forwarded-User"},
		{vars{user: "x-user", operators: "header:X-User", proxies: "10.0.0.7"}, user + " and " + operators + " are the same header; name two"},
		{vars{user: "X-User", operators: "header:a:b", proxies: "10.0.0.7"},
			operators + " is not a header that a proxy can set for this purpose; write the name of the header such as header:X-Forwarded-Role"},
		{vars{user: "X-User", operators: "header:", proxies: "10.0.0.7"},
			operators + " is not a header that a proxy can set for this purpose; write the name of the header such as header:X-Forwarded-Role"},

		{vars{listen: "0.0.0.0:9465", proxies: "10.0.0.7"}, everybody},
		{vars{listen: "0.0.0.0:9465", user: "X-User"}, everybody},
		{vars{listen: "console.example:9465", operators: "hunter2"}, everybody + "\n" + nobody},
		{vars{proxies: "127.0.0.1"}, proxies + " is set, and everybody whom a proxy lets in could open the console; set " + user + ", or unset it"},
		{vars{user: "X-User"}, user + " is set, but no proxy may set the header; list the proxies' addresses in " + proxies + ", such as 10.0.0.7,10.1.0.0/16"},
		{vars{operators: "header:X-Role"}, nobody},
		{vars{operators: "hunter2"}, nobody},
	} {
		got, err := environ.ReadConsole(row.env.lookup)
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
		"0.0.0.0:9465": false, ":9465": false, "[::]:9465": false, "10.0.0.1:1": false, "localhost.example:1": false, "127.0.0.1.example:1": false,
		"": false, "127.0.0.1": false,
	} {
		expect.Equal(t, environ.OnLoopback(listen), want, "%q is on the loopback", listen)
	}
}

func TestPlainRedis_NamesAPasswordThatANetworkSees(t *testing.T) {
	for url, want := range map[string]bool{
		"redis://u:p@redis.internal:6379/0": true, "redis://:p@10.0.0.7": true, "redis://s1?addr=s2:1&master_name=m&password=p": true,
		"redis://redis.internal": false, "redis://u:p@127.0.0.1": false, "redis://u:p@localhost": false, "rediss://u:p@redis.internal": false,
		"unix:///run/redis.sock": false,
	} {
		expect.Equal(t, environ.PlainRedis(url), want, "%s", url)
	}
}
