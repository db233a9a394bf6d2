package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/orderclose/orderclose/examples/checkout"
	"github.com/orderclose/orderclose/examples/checkout/notices"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/testkit/measure"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
	app "github.com/orderclose/orderclose/pipeline" // this package has a function pipeline
	"github.com/orderclose/orderclose/producer"
)

const (
	// noticeDelay is the delay of the orders whose notices are timed.
	noticeDelay = 5 * time.Second
	// noticeRate is the number of those orders a second.
	noticeRate = 100
	// providerLatency is how long a stand-in for a provider takes to answer.
	providerLatency = 20 * time.Millisecond
)

// noticeTimes are the times from the close of an order until each reader has recorded its event.
type noticeTimes struct {
	Orders  int                       `json:"orders"`
	All     measure.Spread            `json:"all"` // until the last of the three readers
	Readers map[string]measure.Spread `json:"readers"`
}

// shopConfig returns a pipeline whose topics the workspace removes in the end.
func (p *workspace) shopConfig() (*app.Config, error) {
	cfg, err := app.Parse("shop.yaml", fmt.Appendf(nil, "delays: {default: %s}\nbuckets: [1s, 5s, 1m]\npartitions: 4\ntopics: {prefix: %s}\n",
		noticeDelay, p.name("shop")+"_"))
	if err != nil {
		return nil, err
	}
	for _, spec := range ops.TopicSpecs(cfg) {
		p.topics[spec.Name] = cfg.Partitions
	}
	return cfg, nil
}

// notices times the notices of orders that the pipeline closes.
func (b *shopBench) notices(ctx context.Context, p *workspace, cfg *app.Config, orders int) (noticeTimes, error) {
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	a, err := app.New(app.Options{Config: cfg, Servers: app.Servers{Brokers: p.brokers, DSN: b.dsn}, Logger: logger})
	if err != nil {
		return noticeTimes{}, err
	}
	defer a.Close()
	if err := a.CreateTopics(ctx); err != nil {
		return noticeTimes{}, err
	}
	outbox, err := producer.NewOutbox(producer.OutboxOptions{Dialect: producer.MySQL})
	if err != nil {
		return noticeTimes{}, err
	}
	shop, err := checkout.New(checkout.Options{
		DB: b.db, Dialect: producer.MySQL, Producer: b.producer, Record: scenario.RecordOf(b.store),
		Outbox: outbox, Closer: b.store, Redis: b.redis, ViewPrefix: b.prefix + "notices:",
		SMS: &notices.StandIn{Latency: providerLatency}, Logistics: &notices.StandIn{Latency: providerLatency}, Logger: logger,
	})
	if err != nil {
		return noticeTimes{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, turnLimit)
	defer cancel()
	running, stop := context.WithCancel(ctx)
	defer stop()
	parts, running := errgroup.WithContext(running)
	parts.Go(func() error { return a.Run(running, app.Relay, app.Closer, app.Outbox) })
	parts.Go(func() error { return shop.ReadEvents(running, a, cfg.Topics.Prefix+"bench", cfg.Topics.Events) })
	err = b.createAndAwait(ctx, running, shop, orders)
	stop()
	if err := errors.Join(err, parts.Wait()); err != nil {
		return noticeTimes{}, err
	}
	return b.noticeTimes(ctx)
}

// createAndAwait creates orders at an even rate, and waits until all readers have recorded them.
func (b *shopBench) createAndAwait(ctx, running context.Context, shop *checkout.Shop, orders int) error {
	begin := time.Now()
	for n := range orders {
		if !sleep(ctx, time.Until(begin.Add(time.Duration(n)*time.Second/noticeRate))) {
			return ctx.Err()
		}
		_, err := shop.Create(ctx, checkout.Request{}, checkout.Basket{ID: fmt.Sprintf("told-%d", n), Customer: fmt.Sprint("c", n%100),
			Items: []checkout.Line{{SKU: skuName(0), Quantity: 1}}})
		if err != nil {
			return err
		}
	}
	for {
		var told int
		if err := b.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM checkout_notices").Scan(&told); err != nil || told == 3*orders {
			return err
		}
		if running.Err() != nil || !sleep(ctx, 200*time.Millisecond) {
			return fmt.Errorf("%d of %d notices after %v", told, 3*orders, time.Since(begin))
		}
	}
}

// noticeTimes reads when each event was recorded.
func (b *shopBench) noticeTimes(ctx context.Context) (noticeTimes, error) {
	t := noticeTimes{Readers: map[string]measure.Spread{}}
	rows, err := b.db.QueryContext(ctx, `SELECT n.order_id, n.reader, n.created_at - TIMESTAMPDIFF(MICROSECOND, '1970-01-01', o.closed_at) DIV 1000
		FROM checkout_notices n JOIN orders o ON o.id = n.order_id`)
	if err != nil {
		return t, err
	}
	defer rows.Close()
	last, readers := map[string]time.Duration{}, map[string][]time.Duration{}
	for rows.Next() {
		var order, reader string
		var ms int64
		if err := rows.Scan(&order, &reader, &ms); err != nil {
			return t, err
		}
		d := time.Duration(ms) * time.Millisecond
		readers[reader] = append(readers[reader], d)
		last[order] = max(last[order], d)
	}
	t.Orders, t.All = len(last), measure.SpreadOf(slices.Collect(maps.Values(last)))
	for reader, times := range readers {
		t.Readers[reader] = measure.SpreadOf(times)
	}
	return t, rows.Err()
}

// dropKeys deletes the keys of the bench in Redis.
func (b *shopBench) dropKeys(ctx context.Context) error {
	keys := b.redis.Scan(ctx, 0, strings.TrimSuffix(b.prefix, ":")+"*", 1000).Iterator()
	var batch []string
	for keys.Next(ctx) {
		batch = append(batch, keys.Val())
	}
	for part := range slices.Chunk(batch, 1000) {
		if err := b.redis.Unlink(ctx, part...).Err(); err != nil {
			return err
		}
	}
	return keys.Err()
}
