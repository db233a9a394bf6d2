package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/testkit/process"
	"github.com/orderclose/orderclose/internal/testkit/servers"
	"github.com/orderclose/orderclose/internal/wire"
)

// brokerSettings are those of three brokers that are not as by default. Kafka's own session timeout is 9 s, and
// its own heartbeat is 2 s.
var brokerSettings = []string{"broker.session.timeout.ms=2000", "broker.heartbeat.interval.ms=500"}

const (
	// redisMaster is the name that the Sentinels give to the group.
	redisMaster = "orders"
	// redisDownAfter is as long as the session of a broker. The example of Redis has 30 s.
	redisDownAfter = 2 * time.Second
)

func threeBrokers(ctx context.Context, dir string) ([]*servers.Server, error) {
	all, err := servers.Brokers(dir, nil, brokerSettings...)
	if err != nil {
		return all, err
	}
	return all, servers.StartAll(ctx, all...)
}

// leader is the active controller, or another broker. Each broker leads a third of the partitions.
func (p *pipeline) leader(_ context.Context, victim string, all []*servers.Server) (*servers.Server, error) {
	text, err := os.ReadFile(filepath.Join(all[0].Dir, "data", "__cluster_metadata-0", "quorum-state"))
	if err != nil {
		return nil, err
	}
	var quorum struct{ LeaderID int }
	if err := json.Unmarshal(text, &quorum); err != nil {
		return nil, err
	}
	if quorum.LeaderID < 1 || quorum.LeaderID > len(all) {
		return nil, fmt.Errorf("no active controller: %s", text)
	}
	if victim == victimController {
		return all[quorum.LeaderID-1], nil
	}
	return all[quorum.LeaderID%len(all)], nil
}

// consumeAsCloser consumes with the client of the closer, which keeps its membership while another broker becomes
// the coordinator. A kafka-go Reader leaves its group then, and its next membership begins when the session of
// the former one has ended, after 6 s.
func (p *pipeline) consumeAsCloser(ctx context.Context, topic string, to *receipts) error {
	cluster, err := kafka.New(kafka.Options{Brokers: p.brokers()})
	if err != nil {
		return err
	}
	defer cluster.Close()
	return cluster.Consume(ctx, "peers-"+p.run.ID, topic, func(ctx context.Context, claim wire.Claim) {
		at := wire.Position{Topic: claim.Topic, Partition: claim.Partition, Offset: claim.Offset}
		for ctx.Err() == nil {
			read, err := cluster.Read(ctx, at)
			if err != nil {
				complain(ctx, "fetch", err)
				sleep(ctx, 50*time.Millisecond)
				continue
			}
			for _, r := range read.Records {
				to.add(r.Body, time.Now())
			}
			at.Offset, at.Log = read.Next, read.Log
			if read.Free != nil {
				read.Free()
			}
			claim.Done(at.Offset, "")
		}
	})
}

// three returns three servers that are not started yet.
func three(kind, dir string, args ...string) (all []*servers.Server, err error) {
	for i := range 3 {
		s, err := servers.New(kind, filepath.Join(dir, fmt.Sprint(kind, "-", i+1)), args...)
		if err != nil {
			return all, err
		}
		all = append(all, s)
	}
	return all, nil
}

// threeRabbits starts the first node, and then those that join it.
func threeRabbits(ctx context.Context, dir string) ([]*servers.Server, error) {
	all, err := three("rabbitmq", dir)
	for i, s := range all {
		if i > 0 {
			s.Env = []string{"RABBITMQ_BESIDE=" + all[0].Dir}
			s.Args = []string{"cluster_formation.peer_discovery_backend=classic_config", "cluster_formation.classic_config.nodes.1=orderclose" +
				all[0].Port + "@localhost"}
		}
		err = errors.Join(err, s.Start(ctx))
	}
	return all, err
}

// threeNATS starts servers whose names are their addresses.
func threeNATS(ctx context.Context, dir string) ([]*servers.Server, error) {
	all, err := three("nats", dir)
	var routes []string
	for _, s := range all {
		route, failed := servers.FreeAddress()
		err = errors.Join(err, failed)
		routes = append(routes, "nats://"+route)
		s.Args = []string{"--name", s.Addr(), "--cluster_name", "peers", "--cluster", "nats://" + route}
	}
	if err != nil {
		return all, err
	}
	for _, s := range all {
		s.Args = append(s.Args, "--routes", strings.Join(routes, ","))
	}
	return all, servers.StartAll(ctx, all...)
}

// redisSentinel starts a master, two replicas and three Sentinels.
func redisSentinel(ctx context.Context, dir string) ([]*servers.Server, error) {
	all, err := three("redis", dir, slices.Concat(redisDurable, []string{"--repl-diskless-sync-delay", "0"})...)
	if err != nil {
		return all, err
	}
	for _, s := range all[1:] {
		s.Args = append(s.Args, "--replicaof", "127.0.0.1 "+all[0].Port)
	}
	sentinels, err := three("sentinel", dir)
	for _, s := range sentinels {
		conf := fmt.Sprintf("sentinel monitor %s 127.0.0.1 %s 2\nsentinel down-after-milliseconds %[1]s %[3]d\n",
			redisMaster, all[0].Port, redisDownAfter.Milliseconds())
		err = errors.Join(err, os.WriteFile(filepath.Join(s.Dir, "sentinel.conf"), []byte(conf), 0o600))
	}
	all = append(all, sentinels...)
	if err != nil {
		return all, err
	}
	return all, servers.StartAll(ctx, all...)
}

// serverAt returns the server with an address.
func serverAt(addr string, all []*servers.Server) (*servers.Server, error) {
	for _, s := range all {
		if s.Addr() == addr {
			return s, nil
		}
	}
	return nil, fmt.Errorf("no server has the address %q", addr)
}

// eventually repeats do for a minute until it succeeds, each time for up to 5 s. After a start the members of a cluster
// look for each other, and NATS answers no request meanwhile.
func eventually(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return process.Await(ctx, func(ctx context.Context) error {
		once, done := context.WithTimeout(ctx, 5*time.Second)
		defer done()
		return do(once)
	})
}
