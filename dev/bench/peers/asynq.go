package main

import (
	"context"
	"fmt"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// asynqQueue uses asynq: a task for each message, which a server of asynq processes.
type asynqQueue struct {
	run    run
	client *asynq.Client
	redis  *redis.Client
}

const (
	asynqTask = "order:close"
	// asynqWorkers is the number of tasks at once.
	asynqWorkers = 50
)

func newAsynq(r run) way { return &asynqQueue{run: r} }

func (q *asynqQueue) server() asynq.RedisClientOpt {
	return asynq.RedisClientOpt{Addr: q.run.Servers["redis"], PoolSize: q.run.Publishers + asynqWorkers}
}

func (q *asynqQueue) open(ctx context.Context) error {
	q.redis = redisClient(q.run)
	if err := q.redis.FlushDB(ctx).Err(); err != nil {
		return err
	}
	q.client = asynq.NewClient(q.server())
	return q.client.Ping()
}

// publish enqueues one task at a time: asynq has no call for many.
func (q *asynqQueue) publish(ctx context.Context, messages []message) error {
	for _, m := range messages {
		if _, err := q.client.EnqueueContext(ctx, asynq.NewTask(asynqTask, m.Body), asynq.ProcessAt(m.Due)); err != nil {
			return err
		}
	}
	return nil
}

func (q *asynqQueue) consume(ctx context.Context, to *receipts) error {
	server := asynq.NewServer(q.server(), asynq.Config{Concurrency: asynqWorkers, LogLevel: asynq.ErrorLevel})
	tasks := asynq.NewServeMux()
	tasks.HandleFunc(asynqTask, func(_ context.Context, t *asynq.Task) error { return to.addNow(t.Payload(), time.Now()) })
	if err := server.Start(tasks); err != nil {
		return err
	}
	<-ctx.Done()
	server.Shutdown()
	return nil
}

func (q *asynqQueue) settings(ctx context.Context) map[string]string {
	return map[string]string{
		"server":  redisSettings(ctx, q.redis),
		"client":  versionOf("github.com/hibiken/asynq"),
		"publish": "ProcessAt, which it rounds down to whole seconds; a call for each message",
		"consume": fmt.Sprintf("Concurrency %d; the rest as by default, such as a DelayedTaskCheckInterval of 5 s", asynqWorkers),
	}
}

func (q *asynqQueue) close() {
	if q.client != nil {
		q.client.Close()
	}
	if q.redis != nil {
		q.redis.Close()
	}
}
