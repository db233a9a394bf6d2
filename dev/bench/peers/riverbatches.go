package main

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"golang.org/x/sync/errgroup"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store"
)

// closeJob is the job of River that closes an order of W5.
type closeJob struct {
	OrderID   string    `json:"order_id"`
	CreatedAt time.Time `json:"created_at"`
	Due       time.Time `json:"due"`
}

// Kind names the job.
func (closeJob) Kind() string { return "order_close_batch" }

const (
	// batchWorkers is the number of jobs at once. River fetches up to as many each FetchCooldown.
	batchWorkers = 5000
	// insertPage is the number of jobs in a call of InsertManyFast.
	insertPage = 1000
)

// batchWorker closes the orders of many jobs in one transaction. River itself gives a worker one job, and many only in River Pro.
type batchWorker struct {
	river.WorkerDefaults[closeJob]
	waiting chan waitingJob
}

// waitingJob is a job that waits for its transaction.
type waitingJob struct {
	request orderclose.CloseRequest
	done    chan error
}

// Work waits until the order is closed.
func (w *batchWorker) Work(ctx context.Context, job *river.Job[closeJob]) error {
	one := waitingJob{orderclose.CloseRequest{OrderID: job.Args.OrderID, CreatedAt: job.Args.CreatedAt, Due: job.Args.Due}, make(chan error, 1)}
	select {
	case w.waiting <- one:
		return <-one.done
	case <-ctx.Done():
		return ctx.Err()
	}
}

// closeAll closes what waits, up to pollPage orders in a transaction and pollWorkers transactions at once, until ctx ends.
func (w *batchWorker) closeAll(ctx context.Context, st *store.Store) {
	var closing errgroup.Group
	closing.SetLimit(pollWorkers)
	defer closing.Wait()
	for {
		var page []waitingJob
		select {
		case one := <-w.waiting:
			page = append(page, one)
		case <-ctx.Done():
			return
		}
		for last := time.After(10 * time.Millisecond); last != nil && len(page) < pollPage; {
			select {
			case one := <-w.waiting:
				page = append(page, one)
			case <-last:
				last = nil
			}
		}
		closing.Go(func() error {
			requests := make([]orderclose.CloseRequest, len(page))
			for i, one := range page {
				requests[i] = one.request
			}
			_, err := st.CloseOrders(ctx, orderclose.PathSweep, requests)
			for _, one := range page {
				one.done <- err // River repeats a job that fails
			}
			return nil
		})
	}
}

// runBatches closes the orders of River's jobs until ctx ends.
func runBatches(ctx context.Context, dsn string) error {
	st, err := store.Open(store.Options{DSN: dsn, MaxOpenConns: pollWorkers + 1})
	if err != nil {
		return err
	}
	defer st.Close()
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return err
	}
	defer pool.Close()
	w := &batchWorker{waiting: make(chan waitingJob)}
	client, err := workingClient(pool, w, batchWorkers)
	if err != nil {
		return err
	}
	if err := client.Start(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	w.closeAll(ctx, st)
	stopping, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return client.StopAndCancel(stopping)
}

// openJobs creates River's tables beside those of the program.
func (p *pipeline) openJobs(ctx context.Context) (err error) {
	if p.jobs, err = pgxpool.New(ctx, p.dsn(p.database())); err != nil {
		return err
	}
	return migrateRiver(ctx, p.jobs)
}

// insertJobs inserts a job for each order.
func (p *pipeline) insertJobs(ctx context.Context, orders int, due time.Time) error {
	client, err := river.NewClient(riverpgxv5.New(p.jobs), &river.Config{})
	if err != nil {
		return err
	}
	for n := 0; n < orders; n += insertPage {
		jobs := make([]river.InsertManyParams, min(insertPage, orders-n))
		for i := range jobs {
			jobs[i] = river.InsertManyParams{Args: closeJob{orderNumber(n + i + 1), due.Add(-5 * time.Minute), due},
				InsertOpts: &river.InsertOpts{ScheduledAt: due}}
		}
		if _, err := client.InsertManyFast(ctx, jobs); err != nil {
			return err
		}
	}
	return nil
}
