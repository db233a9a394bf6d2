package cli

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/clients"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/store/sqlite"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
	"github.com/orderclose/orderclose/internal/wire"
)

// The plan writes nothing, and names the command that writes its events.
func TestEventsAgain_WritesWhatThePlanCounts(t *testing.T) {
	db := must.Get(sqlite.Open(sqlite.Memory, nil))(t)
	t.Cleanup(func() { db.Close() })
	must.Do(t, db.Migrate(t.Context()))
	now := time.Now()
	must.Do(t, scenario.OrdersOf(db).CreateOrder(t.Context(), orderclose.Order{ID: "o-1", CreatedAt: now.Add(-time.Hour), Due: now.Add(-time.Minute)}, nil))
	must.Get(db.CloseOrders(t.Context(), orderclose.PathSweep, []orderclose.CloseRequest{{OrderID: "o-1"}}))(t)
	s := &session{Clients: clients.Clients{Store: db}, cfg: config.Default(), logger: slog.New(slog.DiscardHandler)}
	again := func(output string, yes bool) string {
		t.Helper()
		var out bytes.Buffer
		c := &common{output: output, quiet: true, config: defaultConfig, env: Env{Stdout: &out, Stderr: io.Discard}}
		must.Do(t, c.eventsAgain(t.Context(), s, now.Add(-time.Minute), now.Add(time.Minute), againFlags{rate: 50, yes: yes}))
		return out.String()
	}
	rows := func() int { return int(must.Get(db.Backlog(t.Context(), wire.EventOutbox))(t).Rows) }
	text := again("text", false)
	for _, part := range []string{"order.closed", "would write 1 event into the outbox again, at most 50 a second",
		"orderclose events again --from ", "--rate 50 --yes"} {
		expect.That(t, strings.Contains(text, part), "the plan does not say %q:\n%s", part, text)
	}
	expect.Equal(t, rows(), 1, "events after the plan")
	var done ops.EventsAgain
	must.Do(t, json.Unmarshal([]byte(again("json", true)), &done))
	expect.That(t, done.Closed == 1 && done.All() == 1 && rows() == 2, "%+v, and %d rows", done, rows())

	s.cfg.Closer.Kind = config.KindHTTP
	c := &common{output: "text", quiet: true, env: Env{Stdout: io.Discard, Stderr: io.Discard}}
	err := c.eventsAgain(t.Context(), s, now.Add(-time.Minute), now, againFlags{rate: 50})
	expect.That(t, codeOf(err) == int(Refused) && strings.Contains(err.Error(), "let it write them again"), "with a service that closes: %v", err)
}
