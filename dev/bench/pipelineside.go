package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/closer"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/store"
)

// runPipeline runs a relay and a closer in one process, with the default settings of
// the production program. It stores when each order was closed.
func runPipeline(ctx context.Context, j job) error {
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	cluster, err := kafka.New(kafka.Options{Brokers: j.Brokers, Logger: logger})
	if err != nil {
		return err
	}
	defer cluster.Close()
	st, err := store.Open(store.Options{DSN: j.DSN})
	if err != nil {
		return err
	}
	defer st.Close()
	marks := &markingStore{Store: st}
	c, err := closer.New(closer.Options{
		Log:             cluster,
		Store:           marks,
		Buckets:         orderclose.Buckets{{Topic: j.Source, Length: bucketLength}},
		Group:           j.Group + "_closer",
		CloseTopic:      j.Target,
		DeadLetterTopic: j.DeadLetter,
		Logger:          logger,
	})
	if err != nil {
		return err
	}
	both, running := errgroup.WithContext(ctx)
	both.Go(func() error { return runRelay(running, j) })
	both.Go(func() error { return c.Run(running) })
	return errors.Join(both.Wait(), marks.write(j.Marks))
}

// markingStore records when the answer to each close came.
type markingStore struct {
	closer.Store
	mu    sync.Mutex
	marks []mark
}

type mark struct {
	id string
	at time.Time
}

// CloseOrders implements closer.Store.
func (s *markingStore) CloseOrders(ctx context.Context, path orderclose.Path, reqs []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	outcomes, err := s.Store.CloseOrders(ctx, path, reqs)
	at := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range outcomes {
		if o.Verdict == orderclose.Closed {
			s.marks = append(s.marks, mark{o.OrderID, at})
		}
	}
	return outcomes, err
}

// write writes a line for each order: its number and unix microseconds.
func (s *markingStore) write(file string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	for _, m := range s.marks {
		n, err := numberOf([]byte(m.id))
		if err != nil {
			return err
		}
		fmt.Fprintln(w, n, m.at.UnixMicro())
	}
	return errors.Join(w.Flush(), f.Close())
}
