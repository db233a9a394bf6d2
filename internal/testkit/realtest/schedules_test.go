package realtest

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
)

// Two dispatchers are killed at random moments while both outboxes have rows,
// checkouts add rows to one, and closes to the other. Late orders have to be closed
// by the pipeline, since no sweep runs.
func TestReal_KillingADispatcherLosesNoSchedule(t *testing.T) {
	t.Parallel()
	r := newRig(t, realServers(t))
	r.disturbed = true
	r.configure("outbox: {batch: 3, in_flight: 2}\n")
	r.useOutbox()
	r.closeMany(1000, 100)
	const waiting = 600
	for i := range waiting {
		now := time.Now()
		o := r.shop.Producer.Order(fmt.Sprintf("many-%05d", i), now, "physical") // closed already: harmless
		if err := r.shop.Outbox.Add(t.Context(), r.store.DB(), orderclose.Order{ID: o.ID, CreatedAt: now, Due: o.Due}); err != nil {
			t.Fatal(err)
		}
	}
	r.start("relay", "closer", "outbox-1", "outbox-2")
	killed := make(chan struct{})
	r.load(11, 300, 10*time.Second, func() {
		defer close(killed)
		random := rand.New(rand.NewPCG(11, 11))
		for i := range 12 {
			part := fmt.Sprint("outbox-", 1+i%2)
			<-time.After(time.Duration(500+random.IntN(300)) * time.Millisecond)
			r.signal(part, syscall.SIGKILL)
			r.start(part)
		}
	})
	<-killed
	r.drain()
	r.settle()
	r.drain()
	v := r.check()
	if n := len(r.shop.Added()); n < 100 || len(r.shop.RolledBack()) == 0 {
		t.Errorf("%d orders were added, %d rolled back", n, len(r.shop.RolledBack()))
	}
	if v.ByPath["sweep"] != 0 || v.Closed() < 1000 || v.Events != v.Closed() {
		t.Errorf("closed by path %v, %d events", v.ByPath, v.Events)
	}
}
