package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/orderclose/orderclose/internal/testkit/servers"
)

// natsSchedules uses the message schedules of JetStream: the stream publishes a message to the
// target subject when its schedule says so.
type natsSchedules struct {
	run    run
	conn   *nats.Conn
	stream jetstream.JetStream
}

const (
	natsStream  = "ORDERS"
	natsDelayed = "orders.delayed."
	natsDue     = "orders.due"
	// natsPending is the number of messages that the consumer may hold unacknowledged: the
	// default.
	natsPending = 1000
)

func newNATS(r run) way { return &natsSchedules{run: r} }

func (s *natsSchedules) connect() error {
	conn, err := nats.Connect("nats://"+s.run.Servers["nats"], nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond))
	if err != nil {
		return err
	}
	s.conn = conn
	s.stream, err = jetstream.New(conn, jetstream.WithPublishAsyncTimeout(5*time.Second))
	return err
}

func (s *natsSchedules) open(ctx context.Context) error {
	if err := s.connect(); err != nil {
		return err
	}
	create := func(ctx context.Context) error {
		s.stream.DeleteStream(ctx, natsStream) // an error means that there was none
		_, err := s.stream.CreateStream(ctx, jetstream.StreamConfig{
			Name: natsStream, Subjects: []string{natsDelayed + ">", natsDue}, Storage: jetstream.FileStorage, AllowMsgSchedules: true, AllowMsgTTL: true,
			Replicas: s.replicas(),
		})
		return err
	}
	if s.replicas() > 1 {
		return eventually(ctx, create)
	}
	return create(ctx)
}

func (s *natsSchedules) replicas() int { return len(strings.Split(s.run.Servers["nats"], ",")) }

func (s *natsSchedules) leader(ctx context.Context, _ string, all []*servers.Server) (*servers.Server, error) {
	stream, err := s.stream.Stream(ctx, natsStream)
	if err != nil {
		return nil, err
	}
	return serverAt(stream.CachedInfo().Cluster.Leader, all)
}

// publish gives each message a subject of its own, because a subject holds one schedule.
func (s *natsSchedules) publish(ctx context.Context, messages []message) error {
	acks := make([]jetstream.PubAckFuture, len(messages))
	for i, m := range messages {
		msg := nats.NewMsg(natsDelayed + strings.ReplaceAll(m.OrderID, "-", "."))
		msg.Data = m.Body
		// jetstream.WithScheduleAt would cut the time to whole seconds.
		msg.Header.Set(jetstream.ScheduleHeader, "@at "+m.Due.UTC().Format(time.RFC3339Nano))
		ack, err := s.stream.PublishMsgAsync(msg, jetstream.WithScheduleTarget(natsDue))
		if err != nil {
			return err
		}
		acks[i] = ack
	}
	for _, ack := range acks {
		select {
		case <-ack.Ok():
		case err := <-ack.Err():
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (s *natsSchedules) consume(ctx context.Context, to *receipts) error {
	if err := s.connect(); err != nil {
		return err
	}
	defer s.conn.Close()
	consumer, err := s.stream.CreateOrUpdateConsumer(ctx, natsStream, jetstream.ConsumerConfig{
		Durable: "closer", FilterSubject: natsDue, AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: natsPending,
	})
	if err != nil {
		return err
	}
	consuming, err := consumer.Consume(func(m jetstream.Msg) {
		if err := to.addNow(m.Data(), time.Now()); err != nil {
			complain(ctx, "report", err)
			return
		}
		m.Ack()
	}, jetstream.ConsumeErrHandler(func(jetstream.ConsumeContext, error) {})) // it connects again by itself
	if err != nil {
		return err
	}
	<-ctx.Done()
	consuming.Stop()
	return nil
}

func (s *natsSchedules) settings(context.Context) map[string]string {
	sync := "sync_interval 2m (the default): no fsync before the ack"
	if s.run.Way == "nats-always" {
		sync = "sync_interval always"
	}
	return map[string]string{
		"server":  "nats-server " + s.conn.ConnectedServerVersion(),
		"client":  versionOf("github.com/nats-io/nats.go"),
		"stream":  fmt.Sprintf("file storage, %d replicas, %s", s.replicas(), sync),
		"publish": "Nats-Schedule: @at with nanoseconds, a subject for each message, PublishMsgAsync and wait for the acks",
		"consume": fmt.Sprintf("durable pull consumer, explicit acks, MaxAckPending %d", natsPending),
	}
}

func (s *natsSchedules) close() {
	if s.conn != nil {
		s.conn.Close()
	}
}
