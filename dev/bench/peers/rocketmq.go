package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/admin"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

// rocketMQ uses the timer of RocketMQ 5, which delivers a message at a time.
type rocketMQ struct {
	run      run
	producer rocketmq.Producer
}

const rocketQueues = 4

func newRocketMQ(r run) way {
	rlog.SetLogLevel("fatal")
	return &rocketMQ{run: r}
}

func (m *rocketMQ) topic() string { return "orders_" + m.run.ID }

func (m *rocketMQ) names() primitive.NsResolver {
	return primitive.NewPassthroughResolver([]string{m.run.Servers["rocketmq-names"]})
}

func (m *rocketMQ) open(ctx context.Context) error {
	if err := m.createTopic(ctx); err != nil {
		return err
	}
	var err error
	m.producer, err = rocketmq.NewProducer(producer.WithNsResolver(m.names()), producer.WithGroupName("producers_"+m.run.ID),
		producer.WithRetry(2), producer.WithSendMsgTimeout(10*time.Second))
	if err != nil {
		return err
	}
	return m.producer.Start()
}

func (m *rocketMQ) createTopic(ctx context.Context) error {
	a, err := admin.NewAdmin(admin.WithResolver(m.names()))
	if err != nil {
		return err
	}
	defer a.Close()
	return a.CreateTopic(ctx, admin.WithTopicCreate(m.topic()), admin.WithBrokerAddrCreate(m.run.Servers["rocketmq"]),
		admin.WithReadQueueNums(rocketQueues), admin.WithWriteQueueNums(rocketQueues))
}

// publish sends one message at a time: RocketMQ takes no delayed messages in a batch.
func (m *rocketMQ) publish(ctx context.Context, messages []message) error {
	for _, one := range messages {
		sent := primitive.NewMessage(m.topic(), one.Body)
		sent.WithProperty("TIMER_DELIVER_MS", strconv.FormatInt(one.Due.UnixMilli(), 10))
		answer, err := m.producer.SendSync(ctx, sent)
		if err != nil {
			return err
		}
		if answer.Status != primitive.SendOK {
			return fmt.Errorf("the broker answers with status %d", answer.Status)
		}
	}
	return nil
}

func (m *rocketMQ) consume(ctx context.Context, to *receipts) error {
	c, err := rocketmq.NewPushConsumer(consumer.WithNsResolver(m.names()), consumer.WithGroupName("consumers_"+m.run.ID),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset), consumer.WithConsumerModel(consumer.Clustering),
		consumer.WithConsumeMessageBatchMaxSize(32), consumer.WithPullBatchSize(32))
	if err != nil {
		return err
	}
	handle := func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		now := time.Now()
		for _, one := range messages {
			to.add(one.Body, now)
		}
		if err := to.flush(); err != nil {
			return consumer.ConsumeRetryLater, err
		}
		return consumer.ConsumeSuccess, nil
	}
	if err := c.Subscribe(m.topic(), consumer.MessageSelector{}, handle); err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	<-ctx.Done()
	return c.Shutdown()
}

func (m *rocketMQ) settings(context.Context) map[string]string {
	flush := "ASYNC_FLUSH and timerPrecisionMs 1000 (the defaults)"
	if m.run.Way == "rocketmq-sync" {
		flush = "SYNC_FLUSH, and timerPrecisionMs 1000 (the default)"
	}
	return map[string]string{
		"server":  "RocketMQ 5.5.0, -Xmx2g, " + flush,
		"client":  versionOf("github.com/apache/rocketmq-client-go/v2"),
		"publish": "TIMER_DELIVER_MS, SendSync, a call for each message",
		"consume": fmt.Sprintf("push consumer, %d queues, batches of up to 32", rocketQueues),
	}
}

func (m *rocketMQ) close() {
	if m.producer != nil {
		m.producer.Shutdown()
	}
}
