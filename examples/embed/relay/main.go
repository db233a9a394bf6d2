// Command relay runs a relay and two rooms in a process of the shop, without a database: the intake, which schedules orders
// from change records, and the worker that gives stock back to a service. Other rooms are not linked.
//
//	ORDERCLOSE_KAFKA_BROKERS=127.0.0.1:9092 ORDERCLOSE_RELEASE_URL=http://127.0.0.1:8080/release go run ./relay topics.yaml
package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/orderclose/orderclose/pipeline"
	"github.com/orderclose/orderclose/room"
	"github.com/orderclose/orderclose/rooms/intake"
	"github.com/orderclose/orderclose/rooms/release"
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
	rooms := []room.Room{intake.Room(), release.Room(nil)}
	o, err := pipeline.FromEnvironment(rooms...)
	if err != nil {
		return err
	}
	o.TopicsFile, o.Rooms = "topics.yaml", rooms
	if len(os.Args) > 1 {
		o.TopicsFile = os.Args[1]
	}
	app, err := pipeline.New(o)
	if err != nil {
		return err
	}
	defer app.Close()
	return app.Run(ctx, pipeline.Relay, intake.Role, release.Role)
}
