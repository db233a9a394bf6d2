package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/closer/payment"
	"github.com/orderclose/orderclose/closer/sqlclose"
	"github.com/orderclose/orderclose/pipeline"
	"github.com/orderclose/orderclose/pipeline/eventreader"
	"github.com/orderclose/orderclose/producer"
)

// askProvider implements payment.Provider: order-paid was paid, and the shop does not know it.
func askProvider(_ context.Context, ids []string) ([]payment.Answer, error) {
	answers := make([]payment.Answer, len(ids))
	for i, id := range ids {
		answers[i] = payment.Unpaid
		if id == "order-paid" {
			answers[i] = payment.Paid
		}
	}
	return answers, nil
}

// shop is the shop's side of the database.
type shop struct {
	db      *sql.DB
	dialect producer.Dialect
}

func onPostgres(servers pipeline.Servers) bool { return strings.HasPrefix(servers.DSN, "postgres") }

// sql returns a statement as the database takes it: with $1, $2 and so on in place of each ? on PostgreSQL.
func (s shop) sql(query string) string {
	if s.dialect != producer.Postgres {
		return query
	}
	for n := 1; strings.Contains(query, "?"); n++ {
		query = strings.Replace(query, "?", "$"+strconv.Itoa(n), 1)
	}
	return query
}

// closeShop runs every role beside the shop's own pool, and checks what becomes of three orders.
func closeShop(ctx context.Context, servers pipeline.Servers, logger *slog.Logger) error {
	db, err := openDatabase(servers)
	if err != nil {
		return err
	}
	defer db.Close()
	s := shop{db, producer.MySQL}
	if onPostgres(servers) {
		s.dialect = producer.Postgres
	}

	prefix := fmt.Sprintf("embed-%x-", time.Now().UnixNano()) // of topics, so that each run has its own
	cfg, err := pipeline.Parse("shop.yaml", []byte("delays: {default: 2s}\nbuckets: [1s, 1m]\npartitions: 1\ntopics: {prefix: "+prefix+"}\n"))
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	app, err := pipeline.New(pipeline.Options{
		Config: cfg, Servers: servers, Payment: payment.ProviderFunc(askProvider), Registerer: registry, Logger: logger,
	})
	if err != nil {
		return err
	}
	defer app.Close()
	if err := errors.Join(app.CreateTopics(ctx), app.CreateTables(ctx)); err != nil {
		return err
	}
	p, err := producer.New(producer.Options{
		Brokers: servers.Brokers, TLS: servers.TLS, SASL: servers.SASL,
		Buckets: cfg.Buckets, CloseTopic: cfg.Topics.Close, Delays: cfg.Delays, Logger: logger,
	})
	if err != nil {
		return err
	}
	defer p.Close()
	if _, err := db.ExecContext(ctx, "INSERT INTO stock (sku_id, available, reserved) VALUES ('card', 100, 0)"); err != nil {
		return err
	}
	for _, id := range []string{"order-unpaid", "order-paid", "order-read"} {
		if err := s.checkout(ctx, p.Order(id, time.Now()), id == "order-read"); err != nil {
			return err
		}
	}
	read := func() error { return closeOnRead(ctx, servers, "order-read") }
	if err := operate(ctx, servers, cfg, logger, read); err != nil {
		return err
	}
	if err := read(); err != nil {
		return err
	}
	return runUntil(ctx, app, pipeline.AllRoles(), func(ctx context.Context) error {
		if err := readEvents(ctx, app, prefix+"mails", "order-unpaid", "order-read"); err != nil {
			return err
		}
		return s.checkResult(ctx, registry)
	})
}

// openDatabase opens the shop's own pool. Orderclose has connections of its own.
func openDatabase(servers pipeline.Servers) (*sql.DB, error) {
	if onPostgres(servers) {
		cfg, err := pgx.ParseConfig(servers.DSN)
		if err != nil {
			return nil, err
		}
		if servers.DatabaseTLS != nil {
			cfg.TLSConfig, cfg.Fallbacks = servers.DatabaseTLS.Clone(), nil
			cfg.TLSConfig.ServerName = cfg.Host
		}
		return stdlib.OpenDB(*cfg), nil
	}
	cfg, err := mysql.ParseDSN(servers.DSN)
	if err != nil {
		return nil, err
	}
	cfg.ParseTime, cfg.Loc = true, time.UTC // the shop writes times in UTC
	if servers.DatabaseTLS != nil {
		cfg.TLS = servers.DatabaseTLS.Clone()
	}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

// checkout writes an order of two gift cards, and schedules its close in the same transaction.
// An order that is overdue was due a minute ago, and has no record: the pipeline missed it.
func (s shop) checkout(ctx context.Context, o orderclose.Order, overdue bool) error {
	outbox, err := producer.NewOutbox(producer.OutboxOptions{Dialect: s.dialect})
	if err != nil {
		return err
	}
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if overdue {
		o.CreatedAt, o.Due = o.CreatedAt.Add(-time.Minute), o.Due.Add(-time.Minute)
	} else if err := outbox.Add(ctx, orderclose.SQL(tx), o); err != nil {
		return err
	}
	for _, insert := range []struct {
		query string
		args  []any
	}{
		{"UPDATE stock SET available = available - 2, reserved = reserved + 2 WHERE sku_id = 'card'", nil},
		{"INSERT INTO orders (id, category, status, created_at, expire_at, version) VALUES (?, '', 0, ?, ?, 1)", []any{o.ID, o.CreatedAt.UTC(), o.Due.UTC()}},
		{"INSERT INTO order_items (order_id, line_no, sku_id, quantity) VALUES (?, 1, 'card', 2)", []any{o.ID}},
	} {
		if _, err := tx.ExecContext(ctx, s.sql(insert.query), insert.args...); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// closeOnRead shows an order, and closes it first if it is overdue.
func closeOnRead(ctx context.Context, servers pipeline.Servers, id string) error {
	orders, err := sqlclose.New(sqlclose.Options{DSN: servers.DSN, TLS: servers.DatabaseTLS})
	if err != nil {
		return err
	}
	defer orders.Close()
	out, err := orders.CloseOrders(ctx, orderclose.PathTouch, []orderclose.CloseRequest{{OrderID: id}})
	if err != nil {
		return err
	}
	fmt.Printf("%s was read: %s\n", id, out[0].Verdict)
	return nil
}

// readEvents reads the events of closed orders until it has seen all of the given orders.
func readEvents(ctx context.Context, app *pipeline.App, group string, want ...string) error {
	open := map[string]bool{}
	for _, id := range want {
		open[id] = true
	}
	reading, stop := context.WithCancel(ctx)
	defer stop()
	err := eventreader.Read(reading, app, eventreader.Options[orderclose.OrderClosed]{
		Group: group,
		Handle: func(_ context.Context, events []eventreader.Event[orderclose.OrderClosed]) error {
			for _, e := range events {
				fmt.Printf("event %s: %s was closed by the %s, %d lines came back\n", e.ID, e.Data.OrderID, e.Data.Path, len(e.Data.Release))
				delete(open, e.Data.OrderID)
			}
			if len(open) == 0 {
				stop()
			}
			return nil
		},
	})
	if err == nil && len(open) > 0 {
		err = fmt.Errorf("no events came of %v", open)
	}
	return err
}

// checkResult checks the orders, the stock and the metrics.
func (s shop) checkResult(ctx context.Context, registry *prometheus.Registry) error {
	const paid, closed = 1, 2
	for id, want := range map[string]int{"order-unpaid": closed, "order-paid": paid, "order-read": closed} {
		for status := -1; status != want; {
			if err := s.db.QueryRowContext(ctx, s.sql("SELECT status FROM orders WHERE id = ?"), id).Scan(&status); err != nil {
				return fmt.Errorf("status of %s, want %d: %w", id, want, err)
			}
		}
	}
	var available, reserved int
	if err := s.db.QueryRowContext(ctx, "SELECT available, reserved FROM stock WHERE sku_id = 'card'").Scan(&available, &reserved); err != nil {
		return err
	}
	if available != 98 || reserved != 2 { // the paid order keeps its two
		return fmt.Errorf("the stock is %d available and %d reserved", available, reserved)
	}
	families, err := registry.Gather()
	if err != nil {
		return err
	}
	if len(families) < 30 {
		return fmt.Errorf("the registry has %d metrics only", len(families))
	}
	fmt.Printf("stock: %d available, %d reserved for the paid order; %d metrics\n", available, reserved, len(families))
	return nil
}
