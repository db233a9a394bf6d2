package release_test

import (
	"context"
	"fmt"
	"sync"

	"github.com/orderclose/orderclose/rooms/release"
)

// warehouse keeps stock, and remembers the keys of what was returned. A warehouse with a database
// does both in one transaction.
type warehouse struct {
	mu    sync.Mutex
	stock map[string]int64
	seen  map[string]bool
}

func (w *warehouse) Release(_ context.Context, r release.Request) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.seen[r.Key] {
		return release.ErrAlready
	}
	w.seen[r.Key] = true
	w.stock[r.SKU] += r.Quantity
	return nil
}

// A Releaser of your own. pipeline.Options.Releaser takes it; the role is pipeline.Release.
func ExampleReleaser() {
	w := &warehouse{stock: map[string]int64{"ink": 5}, seen: map[string]bool{}}
	var releaser release.Releaser = w
	for range 2 { // a release may come again
		err := releaser.Release(context.Background(), release.Request{OrderID: "order-17", SKU: "ink", Quantity: 2, Key: "order-17/ink"})
		fmt.Println(w.stock["ink"], err)
	}
	// Output:
	// 7 <nil>
	// 7 it was released before
}
