package cli

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/console"
	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

// The pages of the console and the commands say the same of one state.
func TestBroker_ConsoleSaysWhatTheCommandsSay(t *testing.T) {
	r := newRig(t)
	r.cli("topics", "apply")
	r.send("delay_1h", "waits", time.Now().Add(time.Hour))
	r.send(r.cfg.Topics.Close, "late", time.Now().Add(-time.Minute))
	r.addDeadLetter("given-up", "failed", time.Now())
	sweep, err := wire.Sweep{StartedAt: time.Now().Add(-time.Minute), Lock: "held", Holder: "host/1", Why: wire.SweepOnce, Found: 2, Closed: 2}.Encode()
	must.Do(t, err)
	must.Get(r.kafka.Append(t.Context(), r.cfg.Topics.Control, 0, []wire.Message{sweep}))(t)
	c, err := console.New(console.Options{
		Config: func() *config.Config {
			return r.cfg
		}, Pipeline: ops.Pipeline{Kafka: r.kafka}, Settings: environ.Console{Listen: environ.DefaultConsoleListen},
	})
	must.Do(t, err)
	server := httptest.NewServer(c.Handler())
	t.Cleanup(func() {
		c.Close()
		server.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	ask := func(method, path, form string) string {
		t.Helper()
		req := must.Get(http.NewRequestWithContext(t.Context(), method, server.URL+path, strings.NewReader(form)))(t)
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		res := must.Get(http.DefaultClient.Do(req))(t)
		defer res.Body.Close()
		data := must.Get(io.ReadAll(res.Body))(t)
		return string(data)
	}
	for i := 0; !strings.Contains(ask("GET", "/dead-letters", ""), `<tr data-at="0/0">`); i++ {
		must.That(t, i <= 500, "the console does not read the dead letters")
		time.Sleep(20 * time.Millisecond)
	}
	for _, row := range []struct {
		command            []string
		method, path, form string
		both               string // what the command prints and the page shows
	}{
		{[]string{"status"}, "GET", "/", "", "delay_1h"},
		{[]string{"order", "waits"}, "POST", "/order", "id=waits", "its record waits in delay_1h/"},
		{[]string{"order", "given-up"}, "POST", "/order", "id=given-up", "given up by closer: failed"},
		{[]string{"sweeps"}, "GET", "/sweeps", "", "host/1"},
		{[]string{"topics", "check"}, "GET", "/delays", "", "match topics.yaml"},
		{[]string{"dlq", "ls"}, "GET", "/dead-letters", "", "given-up"},
		{[]string{"dlq", "show", "0/0"}, "GET", "/dead-letters/0/0", "", "given-up"},
	} {
		out, _, _ := r.cli(row.command...)
		if page := ask(row.method, row.path, row.form); !strings.Contains(out, row.both) || !strings.Contains(page, row.both) {
			t.Errorf("orderclose %v and %s do not both show %q:\n%s\n%s", row.command, row.path, row.both, out, page)
		}
	}
}
