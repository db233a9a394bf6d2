package config_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

type environ map[string]string

func (e environ) lookup(name string) (string, bool) {
	v, ok := e[name]
	return v, ok
}

func TestFromEnviron_ReadsEveryVariable(t *testing.T) {
	got, err := config.FromEnviron(environ{
		"ORDERCLOSE_KAFKA_BROKERS": "a:9092, [::1]:9093",
		"ORDERCLOSE_DB_DSN":        "user:pw@tcp(db:3306)/shop",
		"ORDERCLOSE_REDIS_URL":     "rediss://:pw@redis:6379/1",
		"ORDERCLOSE_LISTEN":        ":9000",
	}.lookup)
	want := config.Servers{
		Brokers:  []string{"a:9092", "[::1]:9093"},
		DSN:      "user:pw@tcp(db:3306)/shop",
		RedisURL: "rediss://:pw@redis:6379/1",
		Listen:   ":9000",
	}
	diff := cmp.Diff(want, got)
	expect.That(t, err == nil && diff == "", "error %v (-want +got):\n%s", err, diff)
}

func TestUnknownVariables_AreNamedWithTheNearestKnownOne(t *testing.T) {
	got := config.UnknownVariables([]string{
		"ORDERCLOSE_SERVICE_URI=https://u:secret@x", "ORDERCLOSE_KAFKA_BROKER=b:1", "ORDERCLOSE_LISTEN_FILE=f", "ORDERCLOSE_COLOUR=red",
		"ORDERCLOSE_DB_DSN_FILE=f", "ORDERCLOSE_LISTEN=:1", "PATH=/bin", "ORDERCLOSE_RELAY_SERVICE_HOST=10.0.0.1", "ORDERCLOSE_RELAY_PORT_9464_TCP_ADDR=10.0.0.1",
		"ORDERCLOSE_RELAY_SERVICE_PORT_METRICS=1",
	}, "ORDERCLOSE_SERVICE_URL")
	want := []string{
		"ORDERCLOSE_COLOUR is not a variable of this program and has no effect",
		"ORDERCLOSE_KAFKA_BROKER is not a variable of this program and has no effect; did you mean ORDERCLOSE_KAFKA_BROKERS?",
		"ORDERCLOSE_LISTEN_FILE is not a variable of this program and has no effect",
		"ORDERCLOSE_SERVICE_URI is not a variable of this program and has no effect; did you mean ORDERCLOSE_SERVICE_URL?",
	}
	expect.Same(t, got, want, "warnings")
	sources := must.Get(filepath.Glob("*.go"))(t)
	for _, source := range sources {
		text := must.Get(os.ReadFile(source))(t)
		for _, found := range regexp.MustCompile(`Env\w+ += "(ORDERCLOSE_\w+)"`).FindAllStringSubmatch(string(text), -1) {
			unknown := config.UnknownVariables([]string{found[1] + "=x"})
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
	got := config.OpenSecrets([]string{
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
	diff := cmp.Diff(want, got)
	expect.That(t, diff == "", "(-want +got):\n%s", diff)
}

func TestFromEnviron_MissingVariablesAreEmpty(t *testing.T) {
	got, err := config.FromEnviron(environ{"ORDERCLOSE_DB_DSN": "", "ORDERCLOSE_DB_DSN_FILE": ""}.lookup)
	want := config.Servers{Listen: "127.0.0.1:9464"}
	diff := cmp.Diff(want, got)
	expect.That(t, err == nil && diff == "", "error %v (-want +got):\n%s", err, diff)
}

func TestFromEnviron_ReadsSecretsFromFilesWithoutTheLastNewline(t *testing.T) {
	env := environ{}
	for _, name := range []string{config.EnvDSN, config.EnvRedis} {
		env[name+"_FILE"] = filepath.Join(t.TempDir(), "secret")
	}
	write(t, env[config.EnvDSN+"_FILE"], "pw with space \r\n")
	write(t, env[config.EnvRedis+"_FILE"], "redis://b:2")
	got, err := config.FromEnviron(env.lookup)
	want := config.Servers{DSN: "pw with space ", RedisURL: "redis://b:2", Listen: config.DefaultListen}
	diff := cmp.Diff(want, got)
	expect.That(t, err == nil && diff == "", "error %v (-want +got):\n%s", err, diff)
}

func TestFromEnviron_ErrorsNameTheVariableAndShowNoSecret(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty")
	write(t, empty, "\n")
	large := filepath.Join(t.TempDir(), "large")
	write(t, large, strings.Repeat("hunter2 ", 8<<10)+"x")
	for _, row := range []struct {
		env  environ
		want string
	}{
		{environ{"ORDERCLOSE_INSTANCE": "hunter2 relay"},
			"ORDERCLOSE_INSTANCE has other characters than letters, digits, '.', '_' and '-', or more than 100; write it such as host1-relay"},
		{environ{"ORDERCLOSE_INSTANCE": strings.Repeat("hunter2", 15)},
			"ORDERCLOSE_INSTANCE has other characters than letters, digits, '.', '_' and '-', or more than 100; write it such as host1-relay"},
		{environ{"ORDERCLOSE_HTTP_SECRET": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw,hunter2", "ORDERCLOSE_PAYMENT_SECRET": ","},
			"ORDERCLOSE_HTTP_SECRET: secret 2 is not whsec_ and 24 to 64 bytes in base64; make one with: echo whsec_$(openssl rand -base64 32)\n" +
				"ORDERCLOSE_PAYMENT_SECRET: there is no secret; make one with: echo whsec_$(openssl rand -base64 32)"},
		{environ{"ORDERCLOSE_DB_DSN": "hunter2", "ORDERCLOSE_DB_DSN_FILE": "x"}, "ORDERCLOSE_DB_DSN and ORDERCLOSE_DB_DSN_FILE are both set; unset one"},
		{environ{"ORDERCLOSE_DB_DSN_FILE": "no/such"},
			"ORDERCLOSE_DB_DSN_FILE names a file that cannot be read: no such file or directory; mount the secret there or unset the variable"},
		{environ{"ORDERCLOSE_DB_DSN_FILE": "user:hunter2@tcp(db:3306)/shop"},
			"ORDERCLOSE_DB_DSN_FILE names a file that cannot be read: no such file or directory; mount the secret there or unset the variable"},
		{environ{"ORDERCLOSE_DB_DSN_FILE": empty}, "ORDERCLOSE_DB_DSN_FILE: the file " + empty + " is empty; write the value into it"},
		{environ{"ORDERCLOSE_DB_DSN_FILE": large},
			"ORDERCLOSE_DB_DSN_FILE names a file that cannot be read: it is larger than 64 KiB; mount the secret there or unset the variable"},
		{environ{"ORDERCLOSE_KAFKA_BROKERS": "a:1,hunter2"},
			"ORDERCLOSE_KAFKA_BROKERS: entry 2 is not host:port; write it such as 127.0.0.1:9092,127.0.0.1:9093"},
		{environ{"ORDERCLOSE_KAFKA_BROKERS": "u:hunter2@a:1"},
			"ORDERCLOSE_KAFKA_BROKERS: entry 1 is not host:port; write it such as 127.0.0.1:9092,127.0.0.1:9093"},
		{environ{"ORDERCLOSE_KAFKA_BROKERS": "a:1,"}, "ORDERCLOSE_KAFKA_BROKERS: entry 2 is not host:port; write it such as 127.0.0.1:9092,127.0.0.1:9093"},
		{environ{"ORDERCLOSE_KAFKA_BROKERS": ":9092"}, "ORDERCLOSE_KAFKA_BROKERS: entry 1 is not host:port; write it such as 127.0.0.1:9092,127.0.0.1:9093"},
		{environ{"ORDERCLOSE_REDIS_URL": "redis://:hunter2%zz@a:1"},
			"ORDERCLOSE_REDIS_URL is not a Redis URL; write it such as redis://127.0.0.1:6379/0 (special letters of a password %-escaped)"},
		{environ{"ORDERCLOSE_REDIS_URL": "redis://:16#hunter2@a:1"}, // 16 would be a port
			"ORDERCLOSE_REDIS_URL is not a Redis URL; write it such as redis://127.0.0.1:6379/0 (special letters of a password %-escaped)"},
		{environ{"ORDERCLOSE_REDIS_URL": "hunter2@a:1"},
			"ORDERCLOSE_REDIS_URL is not a Redis URL; write it such as redis://127.0.0.1:6379/0 (special letters of a password %-escaped)"},
		{environ{"ORDERCLOSE_REDIS_URL": "unix+cluster://:hunter2@/x"},
			"ORDERCLOSE_REDIS_URL is not a Redis URL; write it such as redis://127.0.0.1:6379/0 (special letters of a password %-escaped)"},
		{environ{"ORDERCLOSE_LISTEN": "9464", "ORDERCLOSE_REDIS_URL": "x"},
			"ORDERCLOSE_REDIS_URL is not a Redis URL; write it such as redis://127.0.0.1:6379/0 (special letters of a password %-escaped)\n" +
				"ORDERCLOSE_LISTEN is not host:port; write it such as 127.0.0.1:9464"},
		{environ{"ORDERCLOSE_LISTEN": "a:70000"}, "ORDERCLOSE_LISTEN is not host:port; write it such as 127.0.0.1:9464"},
	} {
		got, err := config.FromEnviron(row.env.lookup)
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
	s := config.Servers{Brokers: []string{"a:1"}}
	if err := s.Require(config.EnvBrokers); err != nil {
		t.Errorf("the brokers are set: %v", err)
	}
	err := s.Require(config.EnvBrokers, config.EnvDSN, config.EnvRedis)
	want := `ORDERCLOSE_DB_DSN is not set; export it, such as ORDERCLOSE_DB_DSN="user:password@tcp(127.0.0.1:3306)/shop", ` +
		`or name a file that holds it in ORDERCLOSE_DB_DSN_FILE
ORDERCLOSE_REDIS_URL is not set; export it, such as ORDERCLOSE_REDIS_URL="redis://127.0.0.1:6379/0", or name a file that holds it in ORDERCLOSE_REDIS_URL_FILE`
	expect.That(t, errors.Is(err, config.ErrNotSet) && err.Error() == want, "got\n%v\nwant\n%s", err, want)
}

func TestServers_PrintWithoutSecrets(t *testing.T) {
	s := config.Servers{Brokers: []string{"a:1"}, DSN: "u:hunter2@tcp(db)/shop", RedisURL: "redis://:hunter2@r:1", Listen: ":1"}
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

func TestParse_RefusesWrongSettingsOfTheCloser(t *testing.T) {
	for _, row := range []struct{ closer, want string }{
		{"{http: {url: shop/close}}", `2:22: closer.http.url: it is not http://host/path or https://host/path; write it such as ` +
			`https://shop.example/orderclose/close`},
		{"{http: {url: \"http://u:p@a/\"}}", `2:22: closer.http.url: it holds a user or password; requests are signed instead; write it such as ` +
			`https://shop.example/orderclose/close`},
		{"{http: {url: \"https://a/\", batch: 0}}", `2:43: closer.http.batch: 0 is out of range; write one from 1 to 999`},
		{"{http: {url: \"https://a/\"}, payment: {url: \"http://a/\"}}",
			`2:52: closer.payment.url: with closer.http.url this process does not ask the payment provider; let the service ask, and answer payment_pending while it ` +
				`does not know; then remove this`},
		{"{payment: {url: 7}}", `2:25: closer.payment.url: 7 is read as a value other than text; write it in quotes, "7"`},
		{"{payment: {cancel: true}}", `2:28: closer.payment.url: closer.payment.cancel is true, but there is no url; set it to the URL of the ` +
			`service that cancels payments`},
		{"{payment: {url: \"https://a/\", cancel: always}}", `2:47: closer.payment.cancel: "always" is neither true nor false; write true or false`},
		{"{http: {url: \"https://a/\", cancel: true}}", `2:36: closer.http: unknown key "cancel"; known here: batch, url`},
		{"{payment: {recheck: 10m}}", `2:29: closer.payment.recheck: want a list, found "10m"; write it as [10m, 1h, 24h]`},
		{"{payment: {recheck: [299s]}}", `2:30: closer.payment.recheck[0]: 4m59s is out of range, or not longer than the one before it; write ascending ` +
			`durations from 5m to 30d`},
		{"{payment: {recheck: [1h, 31d]}}", `2:34: closer.payment.recheck[1]: 31d is out of range, or not longer than the one before it; write ascending ` +
			`durations from 5m to 30d`},
		{"{payment: {recheck: [1h, 60m]}}", `2:34: closer.payment.recheck[1]: 1h is out of range, or not longer than the one before it; write ascending ` +
			`durations from 5m to 30d`},
		{"{payment: {recheck_rate: 0}}", `2:34: closer.payment.recheck_rate: 0 is out of range; write one from 1 to 1000000`},
		{"{payment: {uri: x}}", `2:20: closer.payment: unknown key "uri"; did you mean url?`},
	} {
		_, err := config.Parse("t.yaml", []byte("buckets: [1m]\ncloser: "+row.closer+"\n"))
		want := "t.yaml:" + row.want
		expect.That(t, err != nil && err.Error() == want, "%s: got\n%v\nwant\n%s", row.closer, err, want)
	}
}

func TestParse_APaymentProviderNeedsThePaidStatus(t *testing.T) {
	const file = "buckets: [1m]\ncloser: {payment: {url: \"https://a/\"}}\norders:\n  table: t\n  id: {column: id, type: integer}\n" +
		"  status: {column: s, from: 1, to: 9%s}\n  due: {column: d, type: datetime, zone: UTC, precision: s}\n  items: none\n  stock: none\n"
	if _, err := config.Parse("t.yaml", fmt.Appendf(nil, file, "")); err == nil || !strings.Contains(err.Error(),
		"t.yaml:6:11: closer.payment.url: a payment provider is set, but orders.status.paid is empty") {
		t.Errorf("without: %v", err)
	}
	if _, err := config.Parse("t.yaml", fmt.Appendf(nil, file, ", paid: [2]")); err != nil {
		t.Errorf("with: %v", err)
	}
}

func TestFromEnviron_ReadsSeveralSecrets(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secrets")
	write(t, file, "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oDc2FsdHNhbHQ=\nwhsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n")
	got, err := config.FromEnviron(environ{
		"ORDERCLOSE_HTTP_SECRET":         "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw, whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oDc2FsdHNhbHQ=",
		"ORDERCLOSE_PAYMENT_SECRET_FILE": file,
	}.lookup)
	want := config.Secrets{
		HTTP:    []string{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oDc2FsdHNhbHQ="},
		Payment: []string{"whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oDc2FsdHNhbHQ=", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"},
	}
	diff := cmp.Diff(want, got.Secrets)
	expect.That(t, err == nil && diff == "", "%v (-want +got):\n%s", err, diff)
	shown := fmt.Sprintf("%v %+v %#v %s", got, got, got, got)
	expect.That(t, !strings.Contains(shown, "whsec_"), "it shows a secret: %s", shown)
	expect.NoError(t, got.Require(config.EnvHTTPSecret, config.EnvPaymentSecret))
	if err := (config.Servers{}).Require(config.EnvHTTPSecret); !errors.Is(err, config.ErrNotSet) {
		t.Error(err)
	}
}
