package outbox_test

import (
	"context"
	"fmt"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/outbox"
	"github.com/orderclose/orderclose/pipeline"
	"github.com/orderclose/orderclose/pipeline/pipelinetest"
	"github.com/orderclose/orderclose/producer"
)

// A Dispatcher publishes the row that a checkout wrote with its order. An App that does not run has the clients.
func ExampleNew() {
	servers, err := pipelinetest.Start(pipelinetest.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer servers.Close()
	cfg, err := pipeline.Parse("outbox.yaml", []byte("delays: {default: 30s}\nbuckets: [10s, 1m]\npartitions: 1\n"))
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	app, err := servers.App(ctx, pipeline.Options{Config: cfg}) // creates the topics
	if err != nil {
		fmt.Println(err)
		return
	}
	p, err := servers.Producer(cfg)
	if err != nil {
		fmt.Println(err)
		return
	}
	checkout, err := producer.NewOutbox(producer.OutboxOptions{Dialect: producer.SQLite})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := checkout.Add(ctx, orderclose.SQL(servers.DB()), p.Order("order-17", time.Now())); err != nil { // in production: the order's transaction
		fmt.Println(err)
		return
	}
	d, err := outbox.New(outbox.Options{
		Store: app.Host().Connections.Store, Kafka: app.Host().Connections.Kafka, DeadLetterTopic: cfg.Topics.DeadLetter,
		Kinds: []outbox.Kind{outbox.Schedules(func() outbox.Scheduling {
			return outbox.Scheduling{Buckets: cfg.Buckets, CloseTopic: cfg.Topics.Close}
		})},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	stopped := make(chan error, 1)
	go func() { stopped <- d.Run(ctx) }()
	for rows := 1; rows > 0 && ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
		if err := servers.DB().QueryRowContext(ctx, "SELECT COUNT(*) FROM outbox_schedules").Scan(&rows); err != nil {
			fmt.Println(err)
		}
	}
	cancel()
	fmt.Println("published:", <-stopped)
	// Output: published: <nil>
}
