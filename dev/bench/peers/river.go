package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// riverQueue uses River: a job in PostgreSQL for each message.
type riverQueue struct {
	run    run
	pool   *pgxpool.Pool
	client *river.Client[pgx.Tx]
}

// riverWorkers is the number of jobs at once.
const riverWorkers = 1000

type riverJob struct {
	Body string `json:"body"`
}

// Kind names the job.
func (riverJob) Kind() string { return "order_close" }

type riverWorker struct {
	river.WorkerDefaults[riverJob]
	to *receipts
}

// Work runs a job.
func (w *riverWorker) Work(_ context.Context, job *river.Job[riverJob]) error {
	return w.to.addNow([]byte(job.Args.Body), time.Now())
}

func newRiver(r run) way { return &riverQueue{run: r} }

func (q *riverQueue) connect(ctx context.Context) error {
	cfg, err := pgxpool.ParseConfig("postgres://postgres@" + q.run.Servers["postgresql"] + "/postgres?sslmode=disable")
	if err != nil {
		return err
	}
	cfg.MaxConns = int32(q.run.Publishers + 10)
	q.pool, err = pgxpool.NewWithConfig(ctx, cfg)
	return err
}

func (q *riverQueue) open(ctx context.Context) error {
	if err := q.connect(ctx); err != nil {
		return err
	}
	if err := migrateRiver(ctx, q.pool); err != nil {
		return err
	}
	if _, err := q.pool.Exec(ctx, "TRUNCATE river_job"); err != nil {
		return err
	}
	var err error
	q.client, err = river.NewClient(riverpgxv5.New(q.pool), &river.Config{})
	return err
}

// migrateRiver creates River's tables.
func migrateRiver(ctx context.Context, pool *pgxpool.Pool) error {
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	if err == nil {
		_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	}
	return err
}

// workingClient returns a client that works on jobs of one kind, the given number at once.
func workingClient[T river.JobArgs](pool *pgxpool.Pool, worker river.Worker[T], atOnce int) (*river.Client[pgx.Tx], error) {
	workers := river.NewWorkers()
	river.AddWorker(workers, worker)
	return river.NewClient(riverpgxv5.New(pool), &river.Config{
		Queues:  map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: atOnce}},
		Workers: workers,
		Logger:  slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
	})
}

func (q *riverQueue) publish(ctx context.Context, messages []message) error {
	if len(messages) == 1 {
		_, err := q.client.Insert(ctx, riverJob{string(messages[0].Body)}, &river.InsertOpts{ScheduledAt: messages[0].Due})
		return err
	}
	jobs := make([]river.InsertManyParams, len(messages))
	for i, m := range messages {
		jobs[i] = river.InsertManyParams{Args: riverJob{string(m.Body)}, InsertOpts: &river.InsertOpts{ScheduledAt: m.Due}}
	}
	_, err := q.client.InsertManyFast(ctx, jobs)
	return err
}

func (q *riverQueue) consume(ctx context.Context, to *receipts) error {
	if err := q.connect(ctx); err != nil {
		return err
	}
	defer q.pool.Close()
	client, err := workingClient(q.pool, &riverWorker{to: to}, riverWorkers)
	if err != nil {
		return err
	}
	if err := client.Start(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	<-ctx.Done()
	stopping, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return client.Stop(stopping)
}

// queries returns the number of transactions: PostgreSQL counts no statements by default, and
// most of River's statements are transactions of their own.
func (q *riverQueue) queries(ctx context.Context) (n int64, err error) {
	err = q.pool.QueryRow(ctx, "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()").Scan(&n)
	return n, err
}

func (q *riverQueue) settings(ctx context.Context) map[string]string {
	value := func(name string) (v string) {
		if err := q.pool.QueryRow(ctx, "SHOW "+name).Scan(&v); err != nil {
			return err.Error()
		}
		return v
	}
	return map[string]string{
		"server": fmt.Sprintf("PostgreSQL %s, fsync %s, synchronous_commit %s, shared_buffers %s",
			value("server_version"), value("fsync"), value("synchronous_commit"), value("shared_buffers")),
		"client":  versionOf("github.com/riverqueue/river"),
		"publish": "Insert; InsertManyFast for a batch",
		"consume": fmt.Sprintf("MaxWorkers %d; the rest as by default, such as FetchPollInterval 1 s and a scheduler every 5 s", riverWorkers),
	}
}

func (q *riverQueue) close() {
	if q.pool != nil {
		q.pool.Close()
	}
}
