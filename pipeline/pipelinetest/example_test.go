package pipelinetest_test

import (
	"context"
	"fmt"
	"time"

	"github.com/orderclose/orderclose/pipeline"
	"github.com/orderclose/orderclose/pipeline/pipelinetest"
)

// A sweep on the embedded database closes an order that was due an hour ago.
func ExampleStart() {
	servers, err := pipelinetest.Start(pipelinetest.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer servers.Close()
	ctx := context.Background()
	due := time.Now().Add(-time.Hour).UnixMilli()
	_, err = servers.DB().ExecContext(ctx, "INSERT INTO orders (id, category, status, created_at, expire_at, version) VALUES ('order-17', '', 0, ?, ?, 1)", due,
		due)
	if err != nil {
		fmt.Println(err)
		return
	}
	cfg, err := pipeline.Parse("shop.yaml", []byte("buckets: [1m]\n"))
	if err != nil {
		fmt.Println(err)
		return
	}
	app, err := servers.App(ctx, pipeline.Options{Config: cfg})
	if err != nil {
		fmt.Println(err)
		return
	}
	sweeps, err := app.Compensator()
	if err != nil {
		fmt.Println(err)
		return
	}
	report, err := sweeps.Sweep(ctx, false)
	fmt.Println("closed", report.Closed, err)
	// Output: closed 1 <nil>
}
