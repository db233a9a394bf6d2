package webhook_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/clients"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/sqlite"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/storetest"
	"github.com/orderclose/orderclose/pipeline"
	"github.com/orderclose/orderclose/pipeline/pipelinetest"
	"github.com/orderclose/orderclose/producer"
	"github.com/orderclose/orderclose/webhook"
)

const example = "webhook: {url: https://shop.example/events}"

func parse(t *testing.T, more string) (*config.Config, error) {
	t.Helper()
	return config.Parse("shop.yaml", []byte("buckets: [1m]\n"+more))
}

// Beside the webhook the dispatcher goes on with the schedules, and leaves the events alone.
func TestPipeline_BesideItTheDispatcherPublishesSchedulesAlone(t *testing.T) {
	for topics, left := range map[string]int{example: 1, "": 0} {
		synctest.Test(t, func(t *testing.T) {
			servers := must.Get(pipelinetest.Start(pipelinetest.Options{InBubble: true}))(t)
			defer servers.Close()
			a := must.Get(servers.App(t.Context(), pipeline.Options{Config: must.Get(parse(t, topics))(t)}))(t)
			defer a.Close()
			db, now := servers.DB(), time.Now()
			must.Get(db.ExecContext(t.Context(), "INSERT INTO outbox_events (order_id, payload, created_at) VALUES ('a', '{}', ?)", now.UnixMilli()))(t)
			box := must.Get(producer.NewOutbox(producer.OutboxOptions{Dialect: producer.SQLite}))(t)
			must.Do(t, box.Add(t.Context(), orderclose.SQL(db), orderclose.Order{ID: "a", CreatedAt: now, Due: now.Add(time.Hour)}))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			must.Do(t, a.Run(ctx, pipeline.Outbox))
			for table, want := range map[string]int{"outbox_schedules": 0, "outbox_events": left} {
				n := -1
				must.Do(t, db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM "+table).Scan(&n))
				expect.Equal(t, n, want, "rows of %s beside a dispatcher with %q", table, topics)
			}
		})
	}
}

// A sweeper deletes rows of the outboxes after a week, but not those that the webhook has not sent.
func TestPipeline_ASweeperDropsNoEventThatWasNotSent(t *testing.T) {
	for topics, left := range map[string]int{example: 1, "": 0} {
		synctest.Test(t, func(t *testing.T) {
			s := must.Get(sqlite.Open(sqlite.Memory, nil))(t)
			defer s.Close()
			must.Do(t, s.Migrate(t.Context()))
			old := time.Now().Add(-30 * 24 * time.Hour).UnixMilli()
			must.Get(s.DB().ExecContext(t.Context(), "INSERT INTO outbox_events (order_id, payload, created_at) VALUES ('a', '{}', ?)", old))(t)
			a := must.Get(pipeline.New(pipeline.Options{
				Config: must.Get(parse(t, topics))(t), Connections: clients.Clients{Store: s}, SweepEvery: time.Hour, Logger: slog.New(slog.DiscardHandler),
			}))(t)
			defer a.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			must.Do(t, a.Run(ctx, pipeline.Sweeper))
			n := -1
			must.Do(t, s.DB().QueryRowContext(t.Context(), "SELECT COUNT(*) FROM outbox_events").Scan(&n))
			expect.Equal(t, n, left, "old rows beside a sweeper with %q", topics)
		})
	}
}

// A shop's own table, a sweeper, a webhook and nothing else: the event of a closed order arrives once, signed.
func TestReal_ASweeperAndAWebhookNeedADatabaseOnly(t *testing.T) {
	webhook.EachDatabase(t, func(t *testing.T, dsn string) {
		v := &webhook.Receiver{}
		cfg := must.Get(parse(t, `webhook: {url: https://shop.example/events}
orders:
  table: shop_orders
  id: {column: no, type: integer}
  status: {column: state, from: 10, to: 40, paid: [20]}
  due: {column: pay_until, type: unix_ms}
  items: none
  stock: none
`))(t)
		s := must.Get(store.Open(store.Options{DSN: dsn}))(t)
		defer s.Close()
		for _, q := range []string{
			"CREATE TABLE shop_orders (no BIGINT PRIMARY KEY, state INT NOT NULL, pay_until BIGINT NOT NULL)",
			"CREATE INDEX shop_orders_due ON shop_orders (state, pay_until, no)",
		} {
			_, err := s.DB().ExecContext(t.Context(), q)
			must.Do(t, err)
		}
		app := must.Get(pipeline.New(pipeline.Options{
			Config: cfg, Servers: pipeline.Servers{DSN: dsn}, Services: v, SweepEvery: time.Second,
			Secrets: pipeline.Secrets{Webhook: []string{webhook.Secret}}, Logger: slog.New(slog.DiscardHandler),
		}))(t)
		defer app.Close()
		must.Do(t, app.CreateTables(t.Context()))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- app.Run(ctx, pipeline.Sweeper, pipeline.Webhook) }()
		_, err := s.DB().ExecContext(t.Context(), "INSERT INTO shop_orders (no, state, pay_until) VALUES (17, 10, 1700000000000), (18, 20, 1700000000000)")
		must.Do(t, err)
		storetest.Await(t, "the event is sent and marked", func() (string, bool) {
			var n int
			must.Do(t, s.DB().QueryRowContext(t.Context(), "SELECT (SELECT COUNT(*) FROM outbox_events) + (SELECT COUNT(*) FROM orderclose_webhook_events)").Scan(&n))
			return fmt.Sprintf("%d requests, %d rows", v.Requests(), n), v.Requests() == 1 && n == 0
		})
		cancel()
		must.Do(t, <-ended)
		got := v.Take()
		must.That(t, len(got) == 1, "%d requests", len(got))
		expect.Equal(t, got[0].Event(), "order.closed/17", "event")
		expect.NoError(t, got[0].Verify())
	})
}
