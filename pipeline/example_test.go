package pipeline_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/pipeline"
	"github.com/orderclose/orderclose/pipeline/eventreader"
	"github.com/orderclose/orderclose/pipeline/pipelinetest"
)

// The whole pipeline in a process of yours, with the servers that the environment names.
func Example() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	o, err := pipeline.FromEnvironment()
	if err != nil {
		fmt.Println(err)
		return
	}
	o.TopicsFile, o.Watch, o.Logger = "topics.yaml", true, slog.Default()
	app, err := pipeline.New(o)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer app.Close()
	go func() { fmt.Println(pipeline.Serve(ctx, "127.0.0.1:9464", app.Handler(false), slog.Default())) }()
	if err := app.Run(ctx, pipeline.AllRoles()...); err != nil {
		fmt.Println(err)
	}
}

// A test of a shop: the pipeline on embedded servers, and an order that closes after a second.
func ExampleApp_Run() {
	servers, err := pipelinetest.Start(pipelinetest.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer servers.Close()
	cfg, err := pipeline.Parse("shop.yaml", []byte("delays: {default: 1s}\nbuckets: [1s]\npartitions: 1\n"))
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	app, err := servers.App(ctx, pipeline.Options{Config: cfg})
	if err != nil {
		fmt.Println(err)
		return
	}
	p, err := servers.Producer(cfg)
	if err != nil {
		fmt.Println(err)
		return
	}
	order := p.Order("order-17", time.Now())
	// Checkout: the order, and then its record.
	_, err = servers.DB().ExecContext(ctx, "INSERT INTO orders (id, category, status, created_at, expire_at, version) VALUES (?, '', 0, ?, ?, 1)",
		order.ID, order.CreatedAt.UnixMilli(), order.Due.UnixMilli())
	if err == nil {
		err = p.Schedule(ctx, order)
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	go func() {
		err := eventreader.Read(ctx, app, eventreader.Options[orderclose.OrderClosed]{
			Group: "mails",
			Handle: func(_ context.Context, events []eventreader.Event[orderclose.OrderClosed]) error {
				fmt.Println(events[0].Data.OrderID, "was closed by the", events[0].Data.Path)
				cancel()
				return nil
			},
		})
		if err != nil {
			fmt.Println(err)
		}
	}()
	if err := app.Run(ctx, pipeline.Relay, pipeline.Closer, pipeline.Outbox); err != nil {
		fmt.Println(err)
	}
	// Output: order-17 was closed by the pipeline
}
