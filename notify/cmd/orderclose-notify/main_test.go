package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

func TestRun_ServesUntilItIsStopped(t *testing.T) {
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	listen := l.Addr().String()
	l.Close()
	file := filepath.Join(t.TempDir(), "notify.yaml")
	must.Do(t, os.WriteFile(file, []byte("receivers: {sms: {http: {url: http://127.0.0.1:1, body: '{{ .Text }}'}}}"), 0o600))
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	var stderr testkit.LogBuffer
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, []string{"--notify-config", file}, func(name string) (string, bool) { return listen, name == config.EnvListen }, &stderr)
	}()
	for {
		if resp, err := http.Get("http://" + listen + "/-/ready"); err == nil {
			body, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			expect.Equal(t, string(body), "ready\n", "/-/ready")
			break
		}
		must.That(t, ctx.Err() == nil, "not ready after a minute: %s", stderr.String())
	}
	resp := must.Get(http.Post("http://"+listen+"/alert/sms", "application/json", strings.NewReader(`{"status":"firing","alerts":[{"status":"firing"}]}`)))(t)
	resp.Body.Close()
	expect.Equal(t, resp.StatusCode, http.StatusServiceUnavailable, "the answer without a provider")
	stop()
	if code := <-ended; code != 0 {
		t.Errorf("exit %d\n%s", code, stderr.String())
	}
}

func TestRun_SaysWhatIsWrong(t *testing.T) {
	good := filepath.Join(t.TempDir(), "notify.yaml")
	must.Do(t, os.WriteFile(good, []byte("receivers: {sms: {http: {url: http://127.0.0.1:1, body: '{{ .Text }}'}}}"), 0o600))
	for _, c := range []struct {
		args   []string
		listen string
		code   int
		want   string
	}{
		{[]string{"-notify-config", "nowhere.yaml"}, "127.0.0.1:0", 2, "nowhere.yaml"},
		{[]string{"-notify-config", "main_test.go"}, "127.0.0.1:0", 2, "main_test.go: yaml: "},
		{[]string{"more"}, "127.0.0.1:0", 2, `unexpected argument "more"`},
		{[]string{"-wrong"}, "127.0.0.1:0", 2, "usage: orderclose-notify"},
		{[]string{"-help"}, "127.0.0.1:0", 0, "usage: orderclose-notify"},
		{[]string{"-notify-config", good}, "9464", 2, config.EnvListen},
		{[]string{"-notify-config", good}, "192.0.2.1:1", 1, "set " + config.EnvListen},
	} {
		var stderr testkit.LogBuffer
		code := run(t.Context(), c.args, func(name string) (string, bool) { return c.listen, name == config.EnvListen }, &stderr)
		expect.That(t, code == c.code && strings.Contains(stderr.String(), c.want), "%q: exit %d\n%s", c.args, code, stderr.String())
	}
}
