package pipelinetest_test

import (
	"context"
	"fmt"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/delayrelay"
	"github.com/orderclose/orderclose/pipeline"
	"github.com/orderclose/orderclose/pipeline/pipelinetest"
)

// lateness is a closer.Store that prints when an order reaches it.
type lateness chan time.Duration

func (l lateness) CloseOrders(_ context.Context, _ orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	outcomes := make([]orderclose.Outcome, len(requests))
	for i, r := range requests {
		now := time.Now()
		outcomes[i] = orderclose.Outcome{OrderID: r.OrderID, Verdict: orderclose.Closed, Due: r.Due, At: now}
		l <- now.Sub(r.Due)
	}
	return outcomes, nil
}

// A Relay without package pipeline's: it needs the clients of pipeline.Connect, or of
// pipelinetest as here.
func Example_relay() {
	servers, err := pipelinetest.Start(pipelinetest.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer servers.Close()
	clients, err := servers.Connect("relay")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer clients.Close()
	cfg, err := pipeline.Parse("relay.yaml", []byte("delays: {default: 2s}\nbuckets: [1s]\npartitions: 1\n"))
	if err != nil {
		fmt.Println(err)
		return
	}
	reached := make(lateness, 10)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	closes, err := servers.App(ctx, pipeline.Options{Config: cfg, Store: reached})
	if err != nil {
		fmt.Println(err)
		return
	}
	p, err := servers.Producer(cfg)
	if err == nil {
		err = p.Schedule(ctx, p.Order("order-17", time.Now()))
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	relay, err := delayrelay.New(delayrelay.Options{
		Log: clients.Log(), Buckets: cfg.Buckets, Group: cfg.RelayGroup, CloseTopic: cfg.Topics.Close,
		DeadLetterTopic: cfg.Topics.DeadLetter,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	stopped := make(chan error, 2)
	go func() { stopped <- relay.Run(ctx) }()
	go func() { stopped <- closes.Run(ctx, pipeline.Closer) }()
	late := <-reached
	fmt.Println("early:", late < 0, "more than 5 s late:", late > 5*time.Second)
	cancel()
	fmt.Println(<-stopped, <-stopped)
	// Output:
	// early: false more than 5 s late: false
	// <nil> <nil>
}
