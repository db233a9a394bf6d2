package admin_test

import (
	"context"
	"fmt"
	"time"

	"github.com/orderclose/orderclose/admin"
	"github.com/orderclose/orderclose/pipeline"
	"github.com/orderclose/orderclose/pipeline/pipelinetest"
)

// The provider of virtual goods is down, so their orders are not closed for an hour, or until somebody resumes. The App need
// not run; in production pipeline.New makes it.
func Example_pause() {
	servers, err := pipelinetest.Start(pipelinetest.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer servers.Close()
	cfg, err := pipeline.Parse("shop.yaml", []byte("buckets: [1m]\ndelays: {categories: {virtual: 5m}}\n"))
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	app, err := servers.App(ctx, pipeline.Options{Config: cfg})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer app.Close()
	a, err := admin.New(app, "ada@shop")
	if err != nil {
		fmt.Println(err)
		return
	}
	request := admin.PauseRequest{Category: "virtual", For: time.Hour, Reason: "the provider is down"}
	plan, err := a.PlanPause(ctx, request) // show it to a person
	fmt.Println("would end", len(plan.Ended), "of", len(plan.On), "pauses:", err)
	if _, err := a.Pause(ctx, request); err != nil {
		fmt.Println(err)
	}
	on, err := a.Pauses(ctx)
	for _, p := range on {
		fmt.Printf("orders of %s wait: %s\n", p.Category, p.Reason)
	}
	ended, err2 := a.Resume(ctx, "virtual")
	fmt.Println("ended", len(ended), "pauses:", err, err2)
	// Output:
	// would end 0 of 0 pauses: <nil>
	// orders of virtual wait: the provider is down
	// ended 1 pauses: <nil> <nil>
}
