package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/bisect"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/store"

	"github.com/orderclose/orderclose/internal/testkit/process"
)

// crew is a number of closers. Each has a connection pool of its own, and one worker
// for each connection unless workers is set.
type crew struct {
	closers int
	pool    int // connections of each closer
	workers int // workers of each closer; 0: one for each connection
	batch   int // orders per transaction
}

// The two sides of the comparison.
var (
	oneByOne = crew{closers: 1, pool: 8, batch: 1}
	inBatch  = crew{closers: 1, pool: 2, batch: 500}
)

// closed is the result of one side's turn.
type closed struct {
	rps    float64
	gaveUp int // orders that were neither closed nor found paid
	// cpu is the CPU time of the database, in seconds per 100,000 orders; 0: unknown, because the
	// server is no process of this user.
	cpu float64
}

// closeLot closes that many orders, which must already be in the tables.
func (s *shop) closeLot(ctx context.Context, c crew, orders int) (closed, error) {
	all := batchesOf(orders, c.batch)
	batches := make(chan []orderclose.CloseRequest, len(all))
	for _, b := range all {
		batches <- b
	}
	close(batches)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var working sync.WaitGroup
	var gaveUp atomic.Int64
	stores := make([]*store.Store, c.closers)
	for i := range stores {
		st, err := store.Open(store.Options{DSN: s.dsn, MaxOpenConns: c.pool})
		if err == nil {
			err = st.Ping(ctx)
		}
		if err != nil {
			return closed{}, err
		}
		defer st.Close()
		stores[i] = st
	}
	workers := c.workers
	if workers == 0 {
		workers = c.pool
	}
	before := s.databaseCPU()
	began := time.Now()
	for _, st := range stores {
		for range workers {
			working.Go(func() {
				for b := range batches {
					for len(b) > 0 { // contended orders are tried again, as closers do
						outcomes, err := bisect.Bisect(ctx, st, orderclose.PathPipeline, b)
						if err != nil {
							cancel(err)
							return
						}
						var again []orderclose.CloseRequest
						for i, o := range outcomes {
							switch o.Verdict {
							case orderclose.Closed, orderclose.AlreadyPaid:
							case orderclose.Contended:
								again = append(again, b[i])
							default:
								gaveUp.Add(1)
							}
						}
						b = again
					}
				}
			})
		}
	}
	working.Wait()
	if err := context.Cause(ctx); err != nil {
		return closed{}, err
	}
	took := time.Since(began)
	cpu := (s.databaseCPU() - before).Seconds() * 100_000 / float64(orders)
	return closed{rps: float64(orders) / took.Seconds(), gaveUp: int(gaveUp.Load()), cpu: cpu}, nil
}

// batchesOf splits orders as the close topic would: a batch has orders of one partition, in the order
// of their numbers.
func batchesOf(orders, size int) [][]orderclose.CloseRequest {
	var full [][]orderclose.CloseRequest
	open := make([][]orderclose.CloseRequest, partitions)
	for n := range orders {
		p := kafka.PartitionOf([]byte(idOf(n)), partitions)
		if open[p] = append(open[p], orderclose.CloseRequest{OrderID: idOf(n)}); len(open[p]) == size {
			full = append(full, open[p])
			open[p] = nil
		}
	}
	for _, b := range open {
		if len(b) > 0 {
			full = append(full, b)
		}
	}
	return full
}

// overdue returns a lot whose orders were all due a moment ago.
func overdue(orders, skus, paid int) lot {
	due := time.Now().Add(-time.Minute)
	return lot{orders: orders, skus: skus, paid: paid, due: func(int) time.Time { return due }}
}

// turn fills the tables, lets a crew close the orders, and checks the sums.
func (s *shop) turn(ctx context.Context, what string, c crew, l lot) (closed, error) {
	if err := s.fill(ctx, l); err != nil {
		return closed{}, fmt.Errorf("%s: fill the tables: %w", what, err)
	}
	t, err := s.closeLot(ctx, c, l.orders)
	if err == nil {
		err = s.sumsOK(ctx, l)
	}
	if err != nil {
		return closed{}, fmt.Errorf("%s: %w", what, err)
	}
	fmt.Fprintf(os.Stderr, "%-10s %-34s %7d orders %9.0f orders/s, database %.1f CPU-s per 100,000\n", s.on.name, what, l.orders, t.rps, t.cpu)
	return t, nil
}

// databaseCPU returns the CPU time that the database server has used, with its children that still run: PostgreSQL
// has one for each connection. It is 0 if it is unknown.
func (s *shop) databaseCPU() (total time.Duration) {
	at := local.FindStringSubmatch(s.dsn)
	if at == nil {
		return 0
	}
	pid, err := listenerOf(at[1])
	if err != nil {
		return 0
	}
	children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", pid))
	for _, of := range append(strings.Fields(string(children)), strconv.Itoa(pid)) {
		number, _ := strconv.Atoi(of)
		used, _ := process.UsedBy(number) // it may have ended
		total += used.CPU
	}
	return total
}
