// Command relay runs a relay in a process of the shop, without a database. Beside it the process reads the events of closes, and gives stock
// back to the service that keeps it.
//
//	ORDERCLOSE_KAFKA_BROKERS=127.0.0.1:9092 STOCK_URL=http://127.0.0.1:8080/returns go run ./relay topics.yaml
package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"syscall"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/pipeline"
	"github.com/orderclose/orderclose/pipeline/eventreader"

	"example.com/embed/warehouse"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		slog.Error("the pipeline has ended", "err", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	o, err := pipeline.FromEnvironment()
	if err != nil {
		return err
	}
	o.TopicsFile = "topics.yaml"
	if len(os.Args) > 1 {
		o.TopicsFile = os.Args[1]
	}
	app, err := pipeline.New(o)
	if err != nil {
		return err
	}
	defer app.Close()
	stock := warehouse.Service{URL: os.Getenv("STOCK_URL"), Client: http.DefaultClient, Refused: refused}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	read := make(chan error, 1)
	go func() {
		defer stop() // neither works without the other
		read <- eventreader.Read(ctx, app, eventreader.Options[orderclose.OrderClosed]{Group: "warehouse", Handle: stock.Handle})
	}()
	err = app.Run(ctx, pipeline.Relay)
	stop()
	return errors.Join(err, <-read)
}

// refused logs a return that the service refuses for good. A shop keeps it in a table.
func refused(_ context.Context, key string, r warehouse.Return, answer string) error {
	slog.Error("the stock service refuses a return: look at it, and give the stock back", "key", key, "order", r.OrderID, "sku", r.SKU,
		"quantity", r.Quantity, "answer", answer)
	return nil
}
