package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	amqp1 "github.com/Azure/go-amqp"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/orderclose/orderclose/internal/testkit/servers"
)

// rabbitMQ publishes to queues without consumers. Their messages expire, and the dead-letter
// exchange routes them to the queue that the worker consumes. With one queue, delays that differ
// are the expiration of each message. With a queue for each delay, the delay is the queue's.
//
// With delayed retries there is only the queue that the worker consumes. It returns a message before its due time, with that
// time, and gets it again then.
type rabbitMQ struct {
	run      run
	perDelay bool
	delayed  bool
	idle     chan *amqp.Channel
	mu       sync.Mutex
	conn     *amqp.Connection
	declared map[string]bool
}

const (
	rabbitWaiting  = "orders.waiting"
	rabbitDue      = "orders.due"
	rabbitExchange = "orders.expired"
	rabbitTime     = "due" // the header with the due time in milliseconds
	rabbitPrefetch = 500
	rabbitAcks     = 100
	// rabbitStep is the precision of the delays of queues.
	rabbitStep = 100 * time.Millisecond
)

func newRabbitMQ(r run) way {
	return &rabbitMQ{run: r, perDelay: r.Way == "rabbitmq-queues", delayed: r.Way == "rabbitmq-delayed",
		idle: make(chan *amqp.Channel, r.Publishers), declared: map[string]bool{}}
}

func (b *rabbitMQ) dial() (*amqp.Connection, error) {
	var errs []error
	for _, node := range b.nodes() {
		conn, err := amqp.Dial("amqp://guest:guest@" + node + "/")
		if err == nil {
			return conn, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

func (b *rabbitMQ) nodes() []string { return strings.Split(b.run.Servers["rabbitmq"], ",") }

func (b *rabbitMQ) quorum() bool {
	return len(b.nodes()) > 1 || b.delayed || b.run.Way == "rabbitmq-quorum"
}

// typed adds the type of a quorum queue to its arguments. A dead letter must not be lost either.
func (b *rabbitMQ) typed(t amqp.Table) amqp.Table {
	if b.quorum() {
		t["x-queue-type"] = "quorum"
		if t["x-dead-letter-exchange"] != nil {
			t["x-dead-letter-strategy"], t["x-overflow"] = "at-least-once", "reject-publish"
		}
	}
	return t
}

// leader is the node to which open is connected, because a queue's leader is where it is declared.
func (b *rabbitMQ) leader(_ context.Context, _ string, all []*servers.Server) (*servers.Server, error) {
	return serverAt(b.conn.RemoteAddr().String(), all)
}

// deadLetters are the arguments of a queue whose messages expire.
func deadLetters(ttl time.Duration) amqp.Table {
	t := amqp.Table{"x-dead-letter-exchange": rabbitExchange, "x-dead-letter-routing-key": rabbitDue}
	if ttl > 0 {
		t["x-message-ttl"] = ttl.Milliseconds()
	}
	return t
}

func (b *rabbitMQ) open(context.Context) error {
	ch, err := b.channel()
	if err != nil {
		return err
	}
	for _, queue := range []string{rabbitWaiting, rabbitDue} {
		if _, err := ch.QueueDelete(queue, false, false, false); err != nil {
			return err
		}
	}
	if err := ch.ExchangeDeclare(rabbitExchange, "direct", true, false, false, false, nil); err != nil {
		return err
	}
	due := b.typed(amqp.Table{})
	if b.delayed {
		due["x-delayed-retry-type"], due["x-delayed-retry-min"] = "all", 1
	}
	if _, err := ch.QueueDeclare(rabbitDue, true, false, false, false, due); err != nil {
		return err
	}
	if err := ch.QueueBind(rabbitDue, rabbitDue, rabbitExchange, false, nil); err != nil {
		return err
	}
	if !b.perDelay && !b.delayed {
		if _, err := ch.QueueDeclare(rabbitWaiting, true, false, false, false, b.typed(deadLetters(b.run.SameDelay))); err != nil {
			return err
		}
	}
	b.idle <- ch
	return nil
}

// channel returns an idle channel, or a new one in confirm mode. It connects again if the
// connection is lost.
func (b *rabbitMQ) channel() (*amqp.Channel, error) {
	for {
		select {
		case ch := <-b.idle:
			if !ch.IsClosed() {
				return ch, nil
			}
			continue
		default:
		}
		break
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.conn == nil || b.conn.IsClosed() {
		var err error
		if b.conn, err = b.dial(); err != nil {
			return nil, err
		}
	}
	ch, err := b.conn.Channel()
	if err != nil {
		return nil, err
	}
	return ch, ch.Confirm(false)
}

func (b *rabbitMQ) publish(ctx context.Context, messages []message) error {
	ch, err := b.channel()
	if err != nil {
		return err
	}
	if err := b.publishOn(ctx, ch, messages); err != nil {
		ch.Close()
		return err
	}
	b.idle <- ch
	return nil
}

func (b *rabbitMQ) publishOn(ctx context.Context, ch *amqp.Channel, messages []message) error {
	confirms := make([]*amqp.DeferredConfirmation, len(messages))
	for i, m := range messages {
		p := amqp.Publishing{DeliveryMode: amqp.Persistent, ContentType: "application/json", Body: m.Body}
		queue := rabbitWaiting
		switch {
		case b.delayed:
			queue, p.Headers = rabbitDue, amqp.Table{rabbitTime: m.Due.UnixMilli()}
		case b.perDelay:
			var err error
			if queue, err = b.queueFor(ch, m.Delay); err != nil {
				return err
			}
		case m.Delay != b.run.SameDelay:
			// The broker counts from the arrival of the message.
			p.Expiration = strconv.FormatInt(max(0, m.Due.UnixMilli()-time.Now().UnixMilli()), 10)
		}
		confirm, err := ch.PublishWithDeferredConfirmWithContext(ctx, "", queue, true, false, p)
		if err != nil {
			return err
		}
		confirms[i] = confirm
	}
	for _, confirm := range confirms {
		if ok, err := confirm.WaitContext(ctx); err != nil || !ok {
			return errors.Join(err, errors.New("the broker did not confirm a message"))
		}
	}
	return nil
}

// queueFor returns the queue of a delay, rounded up to rabbitStep, and declares it once.
func (b *rabbitMQ) queueFor(ch *amqp.Channel, delay time.Duration) (string, error) {
	delay = max(rabbitStep, (delay + rabbitStep - 1).Truncate(rabbitStep))
	queue := fmt.Sprintf("%s.%d", rabbitWaiting, delay.Milliseconds())
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.declared[queue] {
		return queue, nil
	}
	_, err := ch.QueueDeclare(queue, true, false, false, false, deadLetters(delay))
	b.declared[queue] = err == nil
	return queue, err
}

func (b *rabbitMQ) consume(ctx context.Context, to *receipts) error {
	once := b.consumeOnce
	if b.delayed {
		once = b.consumeTwice
	}
	for ctx.Err() == nil {
		if err := once(ctx, to); err != nil {
			complain(ctx, "consume", err)
			sleep(ctx, 100*time.Millisecond)
		}
	}
	return nil
}

// consumeOnce consumes until the connection is lost. It acknowledges many messages at once.
func (b *rabbitMQ) consumeOnce(ctx context.Context, to *receipts) error {
	conn, err := b.dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	if err := ch.Qos(rabbitPrefetch, 0, false); err != nil {
		return err
	}
	messages, err := ch.Consume(rabbitDue, "", false, false, false, false, nil)
	if err != nil {
		return err
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	var last uint64
	pending := 0
	for {
		select {
		case <-ctx.Done():
			return nil
		case m, ok := <-messages:
			if !ok {
				return errors.New("the connection is lost")
			}
			to.add(m.Body, time.Now())
			last = m.DeliveryTag
			if pending++; pending < rabbitAcks {
				continue
			}
		case <-tick.C:
		}
		if pending == 0 {
			continue
		}
		if err := errors.Join(to.flush(), ch.Ack(last, true)); err != nil {
			return err
		}
		pending = 0
	}
}

// consumeTwice consumes until the connection is lost. A message that is not due yet goes back with its due time. Only the protocol
// AMQP 1.0 has times for single messages.
func (b *rabbitMQ) consumeTwice(ctx context.Context, to *receipts) error {
	conn, err := amqp1.Dial(ctx, "amqp://guest:guest@"+b.nodes()[0], nil)
	if err != nil {
		return err
	}
	defer conn.Close()
	session, err := conn.NewSession(ctx, nil)
	if err != nil {
		return err
	}
	queue, err := session.NewReceiver(ctx, "/queues/"+rabbitDue, &amqp1.ReceiverOptions{Credit: rabbitPrefetch})
	if err != nil {
		return err
	}
	for {
		m, err := queue.Receive(ctx, nil)
		if err != nil {
			return err
		}
		now := time.Now()
		due, _ := m.ApplicationProperties[rabbitTime].(int64)
		if now.UnixMilli() < due {
			err = queue.ModifyMessage(ctx, m, &amqp1.ModifyMessageOptions{Annotations: amqp1.Annotations{"x-opt-delivery-time": due}})
		} else {
			err = errors.Join(to.addNow(m.GetData(), now), queue.AcceptMessage(ctx, m))
		}
		if err != nil {
			return err
		}
	}
}

func (b *rabbitMQ) settings(context.Context) map[string]string {
	ttl := "expiration on each message"
	switch {
	case b.perDelay:
		ttl = fmt.Sprintf("x-message-ttl, a queue for each delay rounded up to %v", rabbitStep)
	case b.run.SameDelay > 0:
		ttl = "x-message-ttl on the queue"
	}
	kind := "classic"
	if b.quorum() {
		kind = "quorum, dead letters at least once,"
	}
	s := map[string]string{
		"client":  versionOf("github.com/rabbitmq/amqp091-go"),
		"queue":   ttl + "; " + kind + " and durable, persistent messages, confirm mode, a channel for each publisher",
		"consume": fmt.Sprintf("1 consumer, prefetch %d, ack of %d or of what came in 5 ms", rabbitPrefetch, rabbitAcks),
	}
	if b.delayed {
		s["client"] += ", and to consume " + versionOf("github.com/Azure/go-amqp")
		s["queue"] = "x-delayed-retry-type all; quorum and durable, persistent messages, confirm mode, a channel for each publisher"
		s["consume"] = fmt.Sprintf("1 consumer by AMQP 1.0, %d credits; modified with x-opt-delivery-time before the due time, accepted after it", rabbitPrefetch)
	}
	if b.conn != nil {
		s["server"] = fmt.Sprintf("RabbitMQ %v", b.conn.Properties["version"])
	}
	return s
}

func (b *rabbitMQ) close() {
	if b.conn != nil {
		b.conn.Close()
	}
}
