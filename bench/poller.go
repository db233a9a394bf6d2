package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store"
)

// burstSide is one side of make bench-burst.
type burstSide struct {
	name string
	poll time.Duration // how often a poller looks; 0: the pipeline
	cron bool          // the poller looks at each whole minute
}

const sideCron = "cron"

// roles returns the roles of the program. The poller needs the dispatcher of events.
func (s burstSide) roles() []string {
	if s.poll > 0 {
		return []string{"outbox"}
	}
	return []string{"relay", "closer", "outbox"}
}

// burstSides reads the sides and the number of rounds from the variables SIDES and ROUNDS.
func burstSides(getenv func(string) string, rounds int) (sides []burstSide, _ int, err error) {
	if text := getenv("ROUNDS"); text != "" {
		if rounds, err = strconv.Atoi(text); err != nil || rounds < 1 {
			return nil, 0, fmt.Errorf("ROUNDS is %q: write a number from 1", text)
		}
	}
	names := strings.Fields(getenv("SIDES"))
	if len(names) == 0 {
		names = []string{sidePipeline, "poller-1s"}
	}
	for _, name := range names {
		side := burstSide{name: name}
		every, isPoller := strings.CutPrefix(name, sidePoller+"-")
		switch {
		case name == sideCron:
			side.poll, side.cron = time.Minute, true
		case isPoller:
			if side.poll, err = time.ParseDuration(every); err != nil || side.poll <= 0 {
				return nil, 0, fmt.Errorf("SIDES names %q: write such as poller-3s", name)
			}
		case name != sidePipeline:
			return nil, 0, fmt.Errorf("SIDES names %q: write some of pipeline, poller-1s with any interval, and cron", name)
		}
		sides = append(sides, side)
	}
	return sides, rounds, nil
}

// runPoller closes orders as a shop without a pipeline does: it looks regularly for unpaid orders
// that are due, and closes them in the transaction of the closer.
func runPoller(ctx context.Context, j job) error {
	st, err := store.Open(store.Options{DSN: j.DSN, MaxOpenConns: pollWorkers + 1})
	if err != nil {
		return err
	}
	defer st.Close()
	for next := time.Now(); ; {
		if j.PollAtMinute {
			next = time.Now().Truncate(time.Minute).Add(time.Minute)
		} else {
			next = next.Add(j.PollEvery)
		}
		if !sleep(ctx, time.Until(next)) {
			return nil
		}
		if err := poll(ctx, st); err != nil {
			return err
		}
		if late := time.Since(next); late > 0 { // polls that were missed are not made up for
			next = next.Add(late.Truncate(j.PollEvery))
		}
	}
}

// poll finds all orders that are due, page by page, and closes a page in a transaction.
func poll(ctx context.Context, st *store.Store) error {
	now, err := st.Now(ctx)
	if err != nil {
		return err
	}
	workers, running := errgroup.WithContext(ctx)
	workers.SetLimit(pollWorkers)
	last := orderclose.Order{}
	for {
		orders, err := st.Overdue(running, now, last, pollPage)
		if err != nil || len(orders) == 0 {
			return errors.Join(err, workers.Wait())
		}
		last = orders[len(orders)-1]
		workers.Go(func() error {
			requests := make([]orderclose.CloseRequest, len(orders))
			for i, o := range orders {
				requests[i] = orderclose.CloseRequest{OrderID: o.ID, CreatedAt: o.CreatedAt, Due: o.Due}
			}
			_, err := st.CloseOrders(running, orderclose.PathSweep, requests)
			return err
		})
	}
}
