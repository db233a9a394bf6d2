package orderclose_test

import (
	"fmt"
	"time"

	"github.com/orderclose/orderclose"
)

// The shortest delay of an order's categories decides when it closes.
func ExampleDelays_Of() {
	delays := orderclose.Delays{
		Default:    30 * time.Minute,
		ByCategory: map[string]time.Duration{"virtual": 5 * time.Minute, "furniture": 2 * time.Hour},
	}
	fmt.Println(delays.Of("furniture", "virtual"))
	fmt.Println(delays.Of("toys"))
	// Output:
	// virtual 5m0s []
	// toys 30m0s [toys]
}

// A record of 17 minutes passes through these delay topics before it reaches the close topic.
func ExampleBuckets_Walk() {
	buckets := orderclose.Buckets{{Topic: "delay_1m", Length: time.Minute}, {Topic: "delay_5m", Length: 5 * time.Minute}}
	for _, b := range buckets.Walk(17 * time.Minute) {
		fmt.Print(b.Topic, " ")
	}
	// Output: delay_5m delay_5m delay_5m delay_1m delay_1m
}

// A reader of the topic order-events, in any Kafka client.
func ExampleDecodeOrderClosed() {
	value := []byte(`{"specversion":"1.0","type":"order.closed","id":"order.closed/order-17","source":"/orderclose",
		"data":{"order_id":"order-17","due_at":"2030-01-02T03:04:05Z","closed_at":"2030-01-02T03:04:05.004Z","path":"pipeline",
		"release":[{"sku":"ink","quantity":2,"key":"order-17/ink"}]}}`)
	id, e, err := orderclose.DecodeOrderClosed(value)
	if err != nil {
		fmt.Println(err) // skip it; errors.Is(err, orderclose.ErrOtherEvent) if it is an event of another type
		return
	}
	fmt.Println(id, "closed", e.ClosedAt.Sub(e.Due), "late, returned", e.Release[0].Quantity, e.Release[0].SKU)
	// Output: order.closed/order-17 closed 4ms late, returned 2 ink
}
