package main

import (
	"context"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// redisKeys sets a key that expires for each message, and subscribes to the events of expired
// keys. The body is in a second key, because an event has only the name of the key. Redis deletes
// expired keys in samples, and keeps no event for a subscriber that is away.
type redisKeys struct {
	run    run
	client *redis.Client
}

const (
	redisTimer = "timer:"
	redisBody  = "body:"
	// redisExpired is the channel of the events of database 0.
	redisExpired = "__keyevent@0__:expired"
)

func newRedisKeys(r run) way { return &redisKeys{run: r, client: redisClient(r)} }

func (s *redisKeys) open(ctx context.Context) error { return s.client.FlushDB(ctx).Err() }

func (s *redisKeys) publish(ctx context.Context, messages []message) error {
	_, err := s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, m := range messages {
			p.Set(ctx, redisBody+m.OrderID, m.Body, 0)
			p.Do(ctx, "SET", redisTimer+m.OrderID, "", "PXAT", m.Due.UnixMilli())
		}
		return nil
	})
	return err
}

func (s *redisKeys) consume(ctx context.Context, to *receipts) error {
	subscription := s.client.Subscribe(ctx, redisExpired)
	defer subscription.Close()
	events := subscription.Channel(redis.WithChannelSize(200_000), redis.WithChannelSendTimeout(time.Minute))
	for {
		select {
		case <-ctx.Done():
			return nil
		case event := <-events:
			ids := []string{strings.TrimPrefix(event.Payload, redisTimer)}
			for len(ids) < redisPage && len(events) > 0 {
				ids = append(ids, strings.TrimPrefix((<-events).Payload, redisTimer))
			}
			if err := s.take(ctx, ids, to); err != nil {
				complain(ctx, "take bodies", err)
			}
		}
	}
}

// take reads and deletes the bodies of expired keys.
func (s *redisKeys) take(ctx context.Context, ids []string, to *receipts) error {
	bodies := make([]*redis.StringCmd, len(ids))
	_, err := s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, id := range ids {
			bodies[i] = p.GetDel(ctx, redisBody+id)
		}
		return nil
	})
	now := time.Now()
	for _, b := range bodies {
		if body, none := b.Bytes(); none == nil {
			to.add(body, now)
		}
	}
	if err == redis.Nil {
		err = nil
	}
	if flushed := to.flush(); err == nil {
		err = flushed
	}
	return err
}

func (s *redisKeys) settings(ctx context.Context) map[string]string {
	return map[string]string{
		"server":  redisSettings(ctx, s.client) + ", notify-keyspace-events Ex",
		"client":  versionOf("github.com/redis/go-redis/v9"),
		"publish": "a key with PXAT, and a second key with the body",
		"consume": "1 subscriber of " + redisExpired + "; GETDEL of the body",
	}
}

func (s *redisKeys) close() { s.client.Close() }
