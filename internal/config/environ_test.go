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

		"ORDERCLOSE_RELEASE_URL":   "https://stock/release",
		"ORDERCLOSE_RELEASE_TOKEN": "pw",
	}.lookup)
	want := config.Servers{
		Brokers:  []string{"a:9092", "[::1]:9093"},
		DSN:      "user:pw@tcp(db:3306)/shop",
		RedisURL: "rediss://:pw@redis:6379/1",
		Listen:   ":9000",
		Release:  config.Release{URL: "https://stock/release", Token: "pw"},
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("error %v (-want +got):\n%s", err, diff)
	}
}

func TestUnknownVariables_AreNamedWithTheNearestKnownOne(t *testing.T) {
	got := config.UnknownVariables([]string{
		"ORDERCLOSE_RELEASE_URI=https://u:secret@x", "ORDERCLOSE_KAFKA_BROKER=b:1", "ORDERCLOSE_LISTEN_FILE=f", "ORDERCLOSE_COLOUR=red",
		"ORDERCLOSE_DB_DSN_FILE=f", "ORDERCLOSE_LISTEN=:1", "PATH=/bin", "ORDERCLOSE_RELAY_SERVICE_HOST=10.0.0.1", "ORDERCLOSE_RELAY_PORT_9464_TCP_ADDR=10.0.0.1", "ORDERCLOSE_RELAY_SERVICE_PORT_METRICS=1",
	})
	want := []string{
		"ORDERCLOSE_COLOUR is not a variable of this program and has no effect",
		"ORDERCLOSE_KAFKA_BROKER is not a variable of this program and has no effect; did you mean ORDERCLOSE_KAFKA_BROKERS?",
		"ORDERCLOSE_LISTEN_FILE is not a variable of this program and has no effect",
		"ORDERCLOSE_RELEASE_URI is not a variable of this program and has no effect; did you mean ORDERCLOSE_RELEASE_URL?",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	sources, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, source := range sources {
		text, err := os.ReadFile(source)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range regexp.MustCompile(`Env\w+ += "(ORDERCLOSE_\w+)"`).FindAllStringSubmatch(string(text), -1) {
			if unknown := config.UnknownVariables([]string{found[1] + "=x"}); len(unknown) > 0 {
				t.Errorf("%s: %v", source, unknown)
			}
		}
	}
}

func TestFromEnviron_MissingVariablesAreEmpty(t *testing.T) {
	got, err := config.FromEnviron(environ{"ORDERCLOSE_DB_DSN": "", "ORDERCLOSE_DB_DSN_FILE": ""}.lookup)
	want := config.Servers{Listen: "127.0.0.1:9464"}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("error %v (-want +got):\n%s", err, diff)
	}
}

func TestFromEnviron_ReadsSecretsFromFilesWithoutTheLastNewline(t *testing.T) {
	env := environ{}
	for _, name := range []string{config.EnvBrokers, config.EnvDSN, config.EnvRedis} {
		env[name+"_FILE"] = filepath.Join(t.TempDir(), "secret")
	}
	write(t, env[config.EnvBrokers+"_FILE"], "a:1\r\n")
	write(t, env[config.EnvDSN+"_FILE"], "pw with space \n")
	write(t, env[config.EnvRedis+"_FILE"], "redis://b:2")
	got, err := config.FromEnviron(env.lookup)
	want := config.Servers{Brokers: []string{"a:1"}, DSN: "pw with space ", RedisURL: "redis://b:2", Listen: config.DefaultListen}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("error %v (-want +got):\n%s", err, diff)
	}
}

func TestFromEnviron_ErrorsNameTheVariableAndShowNoSecret(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty")
	write(t, empty, "\n")
	for _, row := range []struct {
		env  environ
		want string
	}{
		{environ{"ORDERCLOSE_INSTANCE": "hunter2 relay"},
			"ORDERCLOSE_INSTANCE has other characters than letters, digits, '.', '_' and '-', or more than 100; write it such as host1-relay"},
		{environ{"ORDERCLOSE_INSTANCE": strings.Repeat("hunter2", 15)},
			"ORDERCLOSE_INSTANCE has other characters than letters, digits, '.', '_' and '-', or more than 100; write it such as host1-relay"},
		{environ{"ORDERCLOSE_DB_DSN": "hunter2", "ORDERCLOSE_DB_DSN_FILE": "x"},
			"ORDERCLOSE_DB_DSN and ORDERCLOSE_DB_DSN_FILE are both set; unset one"},
		{environ{"ORDERCLOSE_DB_DSN_FILE": "no/such"},
			"ORDERCLOSE_DB_DSN_FILE names a file that cannot be read: no such file or directory; mount the secret there or unset the variable"},
		{environ{"ORDERCLOSE_DB_DSN_FILE": "user:hunter2@tcp(db:3306)/shop"},
			"ORDERCLOSE_DB_DSN_FILE names a file that cannot be read: no such file or directory; mount the secret there or unset the variable"},
		{environ{"ORDERCLOSE_DB_DSN_FILE": empty},
			"ORDERCLOSE_DB_DSN_FILE: the file " + empty + " is empty; write the value into it"},
		{environ{"ORDERCLOSE_RELEASE_URL": "hunter2"},
			"ORDERCLOSE_RELEASE_URL is not a URL of http or https; write it such as https://stock.internal/release"},
		{environ{"ORDERCLOSE_KAFKA_BROKERS": "a:1,hunter2"},
			"ORDERCLOSE_KAFKA_BROKERS: entry 2 is not host:port; write it such as 127.0.0.1:9092,127.0.0.1:9093"},
		{environ{"ORDERCLOSE_KAFKA_BROKERS": "u:hunter2@a:1"},
			"ORDERCLOSE_KAFKA_BROKERS: entry 1 is not host:port; write it such as 127.0.0.1:9092,127.0.0.1:9093"},
		{environ{"ORDERCLOSE_KAFKA_BROKERS": "a:1,"},
			"ORDERCLOSE_KAFKA_BROKERS: entry 2 is not host:port; write it such as 127.0.0.1:9092,127.0.0.1:9093"},
		{environ{"ORDERCLOSE_KAFKA_BROKERS": ":9092"},
			"ORDERCLOSE_KAFKA_BROKERS: entry 1 is not host:port; write it such as 127.0.0.1:9092,127.0.0.1:9093"},
		{environ{"ORDERCLOSE_REDIS_URL": "redis://:hunter2%zz@a:1"},
			"ORDERCLOSE_REDIS_URL is not a Redis URL; write it such as redis://127.0.0.1:6379/0 (special letters of a password %-escaped)"},
		{environ{"ORDERCLOSE_REDIS_URL": "redis://:16#hunter2@a:1"}, // 16 would be a port
			"ORDERCLOSE_REDIS_URL is not a Redis URL; write it such as redis://127.0.0.1:6379/0 (special letters of a password %-escaped)"},
		{environ{"ORDERCLOSE_REDIS_URL": "hunter2@a:1"},
			"ORDERCLOSE_REDIS_URL is not a Redis URL; write it such as redis://127.0.0.1:6379/0 (special letters of a password %-escaped)"},
		{environ{"ORDERCLOSE_REDIS_URL": "redis+sentinels://:hunter2@a,b"},
			"ORDERCLOSE_REDIS_URL is not a Redis URL; write it such as redis://127.0.0.1:6379/0 (special letters of a password %-escaped)"},
		{environ{"ORDERCLOSE_REDIS_URL": "unix+cluster://:hunter2@/x"},
			"ORDERCLOSE_REDIS_URL is not a Redis URL; write it such as redis://127.0.0.1:6379/0 (special letters of a password %-escaped)"},
		{environ{"ORDERCLOSE_REDIS_URL": "redis+sentinel://:16#hunter2@a:1,b:2"}, // 16 would be a port
			"ORDERCLOSE_REDIS_URL is not a Redis URL; write it such as redis://127.0.0.1:6379/0 (special letters of a password %-escaped)"},
		{environ{"ORDERCLOSE_LISTEN": "9464", "ORDERCLOSE_REDIS_URL": "x"},
			"ORDERCLOSE_REDIS_URL is not a Redis URL; write it such as redis://127.0.0.1:6379/0 (special letters of a password %-escaped)\n" +
				"ORDERCLOSE_LISTEN is not host:port; write it such as 127.0.0.1:9464"},
		{environ{"ORDERCLOSE_LISTEN": "a:70000"},
			"ORDERCLOSE_LISTEN is not host:port; write it such as 127.0.0.1:9464"},
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
	want := `ORDERCLOSE_DB_DSN is not set; export it, such as ORDERCLOSE_DB_DSN="user:password@tcp(127.0.0.1:3306)/shop", or name a file that holds it in ORDERCLOSE_DB_DSN_FILE
ORDERCLOSE_REDIS_URL is not set; export it, such as ORDERCLOSE_REDIS_URL="redis://127.0.0.1:6379/0", or name a file that holds it in ORDERCLOSE_REDIS_URL_FILE`
	if !errors.Is(err, config.ErrNotSet) || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

func TestServers_PrintWithoutSecrets(t *testing.T) {
	s := config.Servers{Brokers: []string{"a:1"}, DSN: "u:hunter2@tcp(db)/shop", RedisURL: "redis://:hunter2@r:1", Listen: ":1"}
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("start", "servers", s)
	slog.New(slog.NewTextHandler(&log, nil)).Info("start", "servers", &s)
	marshaled, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{fmt.Sprint(s), fmt.Sprintf("%+v %#v %s %q", s, s, &s, s), log.String(), string(marshaled)} {
		if strings.Contains(text, "hunter2") || !strings.Contains(text, "a:1") {
			t.Errorf("printed as %s", text)
		}
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
