package cli

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/console"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

// The API of the console says the same of one state as the commands, and the pages show it.
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
		}, Pipeline: ops.Pipeline{Kafka: r.kafka}, Settings: config.Console{Listen: config.DefaultConsoleListen}, TopicsFile: r.file,
	})
	must.Do(t, err)
	server := httptest.NewServer(c.Handler())
	t.Cleanup(func() {
		c.Close()
		server.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	ask := func(method, path, body string) string {
		t.Helper()
		req := must.Get(http.NewRequestWithContext(t.Context(), method, server.URL+path, strings.NewReader(body)))(t)
		if body != "" {
			req.Header.Set("Content-Type", "application/json")
		}
		res := must.Get(http.DefaultClient.Do(req))(t)
		defer res.Body.Close()
		data := must.Get(io.ReadAll(res.Body))(t)
		return string(data)
	}
	for i := 0; !strings.Contains(ask("GET", "/api/v1/dead-letters", ""), `"complete":true`); i++ {
		must.That(t, i <= 500, "the console does not read the dead letters")
		time.Sleep(20 * time.Millisecond)
	}
	for _, row := range []struct {
		command            []string
		method, path, body string
		at                 []string // where the value of the command is in the answer
		page, shows        string
	}{
		{[]string{"status"}, "GET", "/api/v1/status", "", []string{"kafka", "value"}, "/", "delay_1h"},
		{[]string{"order", "waits"}, "POST", "/api/v1/order", `{"order_id":"waits"}`, nil, "", ""},
		{[]string{"order", "given-up"}, "POST", "/api/v1/order", `{"order_id":"given-up"}`, nil, "", ""},
		{[]string{"sweeps", "--limit", "0"}, "GET", "/api/v1/sweeps", "", []string{"value"}, "/sweeps", "host/1"},
		{[]string{"topics", "plan"}, "GET", "/api/v1/topics", "", []string{"value"}, "/delays", "match topics.yaml"},
		{[]string{"dlq", "ls"}, "GET", "/api/v1/dead-letters", "", nil, "/dead-letters", "given-up"},
		{[]string{"dlq", "show", "0/0"}, "GET", "/api/v1/dead-letters/0/0", "", nil, "/dead-letters/0/0", "given-up"},
		{[]string{"topics", "plan", "--delay", "30m"}, "POST", "/api/v1/delays", `{"category":"any"}`, []string{"path"}, "", ""},
	} {
		out, _, _ := r.cli(append(row.command, "-o", "json")...)
		var command, api any
		if err := json.Unmarshal([]byte(out), &command); err != nil {
			t.Fatalf("%v: %v", row.command, err)
		}
		if err := json.Unmarshal([]byte(ask(row.method, row.path, row.body)), &api); err != nil {
			t.Fatalf("%s: %v", row.path, err)
		}
		if s, ok := command.(map[string]any); ok && s["verdict"] != nil {
			answer := api.(map[string]any)
			if diff := cmp.Diff(sameAt(s["verdict"]), sameAt(map[string]any{"state": answer["state"], "problems": answer["problems"]})); diff != "" {
				t.Errorf("the verdicts of command and API differ:\n%s", diff)
			}
			delete(s, "verdict")
			delete(s, "overdue")
		}
		for _, key := range row.at {
			api = api.(map[string]any)[key]
		}
		if diff := cmp.Diff(sameAt(command), sameAt(api)); diff != "" {
			t.Errorf("orderclose %v and %s differ (-command +API):\n%s", row.command, row.path, diff)
		}
		if row.page != "" && !strings.Contains(ask("GET", row.page, ""), row.shows) {
			t.Errorf("%s does not show %q", row.page, row.shows)
		}
	}
}

// sameAt removes what differs from one moment to the next, and what only one side has: the numbers
// of all dead letters stand beside a list of them, in other words in the API. The command reads more
// dead letters than the console, which has an index of them.
func sameAt(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key, inner := range v {
			switch key {
			case "at":
				if _, position := inner.(string); position && !strings.Contains(inner.(string), "T") {
					continue // of a dead letter
				}
				delete(v, key)
			case "since", "overdue_seconds", "from", "to", "state", "topic", "pending", "more", "gone", "next", "looked_at":
				delete(v, key)
			default:
				v[key] = sameAt(inner)
			}
		}
	case []any:
		for i := range v {
			v[i] = sameAt(v[i])
		}
	}
	return value
}
