package cli

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose/internal/config"
)

func TestNotify_ServesUntilItIsStopped(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listen := l.Addr().String()
	l.Close()
	file := filepath.Join(t.TempDir(), "notify.yaml")
	if err := os.WriteFile(file, []byte("receivers: {sms: {http: {url: http://127.0.0.1:1, body: '{{ .Text }}'}}}"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	env := Env{Stdout: &bytes.Buffer{}, Stderr: &bytes.Buffer{}, LookupEnv: func(name string) (string, bool) {
		return listen, name == config.EnvListen
	}}
	ended := make(chan int, 1)
	go func() { ended <- Main(ctx, env, []string{"notify", "--notify-config", file}) }()
	deadline := time.Now().Add(time.Minute)
	for {
		out, _, code := run(t, map[string]string{config.EnvListen: listen}, "healthcheck")
		if code == 0 && out == "ready\n" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("exit %d, %q", code, out)
		}
	}
	resp, err := http.Post("http://"+listen+"/alert/sms", "application/json", strings.NewReader(`{"status":"firing","alerts":[{"status":"firing"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if resp.Body.Close(); resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("without a provider it answers %s, want 503", resp.Status)
	}
	stop()
	if code := <-ended; code != 0 {
		t.Errorf("exit %d\n%s", code, env.Stderr)
	}
}
