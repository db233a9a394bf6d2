package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/orderclose/orderclose/internal/testkit/servers"
)

// redisSet keeps messages in a sorted set by due time. The worker polls the set and moves what is
// due to a stream that a consumer group reads.
type redisSet struct {
	run    run
	every  time.Duration
	client *redis.Client
}

const (
	redisDelayed = "orders:delayed"
	redisDue     = "orders:due"
	redisGroup   = "closer"
	redisPage    = 500
)

// redisDurable are the arguments of every Redis.
var redisDurable = []string{"--appendonly", "yes", "--appendfsync", "everysec", "--save", "3600 1 300 100 60 10000"}

// redisMove moves a page of due messages to the stream, all or none.
var redisMove = redis.NewScript(`
local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[1], 'LIMIT', 0, ARGV[2])
if #due == 0 then return 0 end
for _, body in ipairs(due) do redis.call('XADD', KEYS[2], '*', 'body', body) end
redis.call('ZREM', KEYS[1], unpack(due))
return #due`)

func newRedisSet(every time.Duration) func(run) way {
	return func(r run) way { return &redisSet{run: r, every: every, client: redisClient(r)} }
}

func redisClient(r run) *redis.Client {
	if sentinels := r.Servers["sentinel"]; sentinels != "" {
		return redis.NewFailoverClient(&redis.FailoverOptions{MasterName: redisMaster, SentinelAddrs: strings.Split(sentinels, ","), PoolSize: r.Publishers + 4})
	}
	return redis.NewClient(&redis.Options{Addr: r.Servers["redis"], PoolSize: r.Publishers + 4})
}

// leader is the master, which Sentinel has chosen.
func (s *redisSet) leader(ctx context.Context, _ string, all []*servers.Server) (*servers.Server, error) {
	return serverAt("127.0.0.1:"+redisInfo(ctx, s.client, "server", "tcp_port"), all)
}

func (s *redisSet) open(ctx context.Context) error {
	if s.run.Servers["sentinel"] != "" {
		err := eventually(ctx, func(ctx context.Context) error {
			if n := redisInfo(ctx, s.client, "replication", "connected_slaves"); n != "2" {
				return fmt.Errorf("the master has %q replicas", n)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	if err := s.client.FlushDB(ctx).Err(); err != nil {
		return err
	}
	return s.client.XGroupCreateMkStream(ctx, redisDue, redisGroup, "0").Err()
}

func (s *redisSet) publish(ctx context.Context, messages []message) error {
	members := make([]redis.Z, len(messages))
	for i, m := range messages {
		members[i] = redis.Z{Score: float64(m.Due.UnixMilli()), Member: m.Body}
	}
	return s.client.ZAdd(ctx, redisDelayed, members...).Err()
}

func (s *redisSet) consume(ctx context.Context, to *receipts) error {
	go s.poll(ctx)
	// First the messages that an earlier worker has read and not acknowledged.
	for from := "0"; ctx.Err() == nil; {
		read, err := s.client.XReadGroup(ctx, &redis.XReadGroupArgs{
			Group: redisGroup, Consumer: "worker", Streams: []string{redisDue, from}, Count: redisPage, Block: time.Second,
		}).Result()
		if errors.Is(err, redis.Nil) {
			continue
		}
		if err != nil {
			complain(ctx, "read the stream", err)
			sleep(ctx, 50*time.Millisecond)
			continue
		}
		if from == "0" && len(read[0].Messages) == 0 {
			from = ">"
			continue
		}
		if err := s.acknowledge(ctx, read[0].Messages, to); err != nil {
			complain(ctx, "acknowledge", err)
			from = "0"
		}
	}
	return nil
}

func (s *redisSet) acknowledge(ctx context.Context, messages []redis.XMessage, to *receipts) error {
	now := time.Now()
	ids := make([]string, len(messages))
	for i, m := range messages {
		body, _ := m.Values["body"].(string)
		to.add([]byte(body), now)
		ids[i] = m.ID
	}
	if err := to.flush(); err != nil {
		return err
	}
	_, err := s.client.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.XAck(ctx, redisDue, redisGroup, ids...)
		p.XDel(ctx, redisDue, ids...)
		return nil
	})
	return err
}

func (s *redisSet) poll(ctx context.Context) error {
	return regularly(ctx, s.every, func() error {
		for n := redisPage; n == redisPage; {
			var err error
			if n, err = redisMove.Run(ctx, s.client, []string{redisDelayed, redisDue}, time.Now().UnixMilli(), redisPage).Int(); err != nil {
				complain(ctx, "poll", err)
				break
			}
		}
		return nil
	})
}

// complain prints an error of a worker that tries again.
func complain(ctx context.Context, what string, err error) {
	if ctx.Err() == nil {
		fmt.Fprintf(os.Stderr, "worker: %s: %v\n", what, err)
	}
}

// redisInfo returns a field of INFO; empty: the server does not say it.
func redisInfo(ctx context.Context, c *redis.Client, section, field string) string {
	for line := range strings.Lines(c.Info(ctx, section).Val()) {
		if v, ok := strings.CutPrefix(line, field+":"); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// redisSettings reads version and durability from the server.
func redisSettings(ctx context.Context, c *redis.Client) string {
	value := func(name string) string { return c.ConfigGet(ctx, name).Val()[name] }
	return fmt.Sprintf("Redis %s, appendonly %s, appendfsync %s, save %q", redisInfo(ctx, c, "server", "redis_version"), value("appendonly"),
		value("appendfsync"), value("save"))
}

func (s *redisSet) settings(ctx context.Context) map[string]string {
	group := ""
	if s.run.Servers["sentinel"] != "" {
		group = fmt.Sprintf(", 2 replicas, 3 Sentinels with down-after-milliseconds %d; a write is acknowledged before a replica has it",
			redisDownAfter.Milliseconds())
	}
	return map[string]string{
		"server": redisSettings(ctx, s.client) + group,
		"client": versionOf("github.com/redis/go-redis/v9"),
		"poll":   fmt.Sprintf("every %v, a script: ZRANGEBYSCORE LIMIT %d, XADD, ZREM; again until it finds fewer", s.every, redisPage),
		"read":   fmt.Sprintf("1 consumer, XREADGROUP COUNT %d, XACK and XDEL; after a start first what is pending", redisPage),
	}
}

func (s *redisSet) close() { s.client.Close() }
