package eventreader

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
	"github.com/orderclose/orderclose/pipeline"
)

type (
	closeOptions = Options[orderclose.OrderClosed]
	closeEvent   = Event[orderclose.OrderClosed]
)

// damaging flips one bit of the first answer that has the marker, once.
type damaging struct {
	net.Conn
	marker []byte
	done   *atomic.Bool
}

func (d damaging) Read(b []byte) (int, error) {
	n, err := d.Conn.Read(b)
	if i := bytes.Index(b[:n], d.marker); i >= 0 && d.done.CompareAndSwap(false, true) {
		b[i] ^= 1
	}
	return n, err
}

// newBroker starts a broker with a topic, and returns a client of it. A second client gets one damaged answer: the first that has the marker.
func newBroker(t *testing.T, topic string, partitions int32, marker string) (broker *kfake.Cluster, good, damaged *kafka.Cluster) {
	t.Helper()
	broker = must.Get(kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(partitions, topic),
		kfake.BrokerConfigs(map[string]string{"group.initial.rebalance.delay.ms": "0"})))(t)
	t.Cleanup(broker.Close)
	done := &atomic.Bool{}
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return damaging{conn, []byte(marker), done}, nil
	}
	var clients []*kafka.Cluster
	for _, o := range []kafka.Options{{Brokers: broker.ListenAddrs()}, {Brokers: broker.ListenAddrs(), Dial: dial}} {
		c := must.Get(kafka.New(o))(t)
		t.Cleanup(c.Close)
		clients = append(clients, c)
	}
	return broker, clients[0], clients[1]
}

// appendEvents appends 20 events to the topic.
func appendEvents(t *testing.T, k *kafka.Cluster, topic string) {
	t.Helper()
	for i := range 20 {
		id, now := fmt.Sprintf("order-%04d", i), time.Now().UTC().Truncate(time.Millisecond)
		data, _ := json.Marshal(map[string]any{"order_id": id, "category": "c", "due_at": now, "closed_at": now, "path": "pipeline"})
		value := fmt.Sprintf(`{"specversion":"1.0","id":"e%d","source":"orderclose","type":"order.closed","time":%q,"datacontenttype":"application/json","data":%s}`,
			i, now.Format(time.RFC3339Nano), data)
		must.Get(k.Append(t.Context(), topic, 0, []wire.Message{{Key: []byte(id), Value: []byte(value)}}))(t)
	}
}

// readAll reads events until there are 20 different ones, or for ten seconds.
func readAll(t *testing.T, k *kafka.Cluster, o closeOptions) (seen map[string]bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var mu sync.Mutex
	seen = map[string]bool{}
	handle := o.Handle
	o.Handle = func(ctx context.Context, events []closeEvent) error {
		if handle != nil {
			if err := handle(ctx, events); err != nil {
				return err
			}
		}
		mu.Lock()
		defer mu.Unlock()
		for _, e := range events {
			seen[e.Data.OrderID] = true
		}
		if len(seen) == 20 {
			cancel()
		}
		return nil
	}
	o.Group, o.Topic = "points", "order-events"
	expect.NoError(t, read(ctx, k, o))
	return seen
}

func TestRead_OneDamagedAnswerLosesNoEvent(t *testing.T) {
	_, good, damaged := newBroker(t, "order-events", 1, "order-0007")
	appendEvents(t, good, "order-events")
	seen := readAll(t, damaged, closeOptions{Skipped: func(err error) { t.Error(err) }})
	expect.Equal(t, len(seen), 20, "handled of 20 events")
}

// A call of Handle that fails repeats its own events, and not those of the calls before it.
func TestRead_AnErrorRepeatsOneBatch(t *testing.T) {
	_, k, _ := newBroker(t, "order-events", 1, "")
	appendEvents(t, k, "order-events")
	calls := map[string]int{}
	seen := readAll(t, k, closeOptions{Batch: 3, Handle: func(_ context.Context, events []closeEvent) error {
		calls[events[0].Data.OrderID]++
		if calls[events[0].Data.OrderID] < 3 {
			return errors.New("the service answers 500")
		}
		return nil
	}})
	expect.Equal(t, len(seen), 20, "events")
	for id, n := range calls {
		expect.That(t, n == 3, "the batch of %s came %d times", id, n)
	}
}

// The events come again, as after an error. The stack is logged once.
func TestRead_APanicOfTheHandlerIsAnError(t *testing.T) {
	_, good, _ := newBroker(t, "order-events", 1, "none")
	appendEvents(t, good, "order-events")
	panics, log := 0, &testkit.LogBuffer{}
	seen := readAll(t, good, closeOptions{Logger: slog.New(slog.NewTextHandler(log, nil)), Handle: func(context.Context, []closeEvent) error {
		if panics++; panics <= 3 {
			panic("no such customer")
		}
		return nil
	}})
	n := strings.Count(log.String(), "stack=")
	expect.That(t, len(seen) == 20 && panics == 4 && n == 1, "%d of 20 events after %d calls, and %d stacks in the log:\n%s", len(seen), panics, n, log)
}

func TestRead_AnIdleReaderCommitsOnce(t *testing.T) {
	broker, good, _ := newBroker(t, "order-events", 4, "none")
	var partitions, fetches atomic.Int64
	enough := make(chan struct{})
	broker.ControlKey(int16(kmsg.OffsetCommit), func(r kmsg.Request) (kmsg.Response, error, bool) {
		broker.KeepControl()
		for _, topic := range r.(*kmsg.OffsetCommitRequest).Topics {
			partitions.Add(int64(len(topic.Partitions)))
		}
		return nil, nil, false
	})
	broker.ControlKey(int16(kmsg.Fetch), func(kmsg.Request) (kmsg.Response, error, bool) {
		broker.KeepControl()
		if fetches.Add(1) == 12 {
			close(enough)
		}
		return nil, nil, false
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		select {
		case <-enough:
		case <-t.Context().Done():
		}
		cancel()
	}()
	expect.NoError(t, read(ctx, good, closeOptions{Group: "points", Topic: "order-events",
		Handle: func(context.Context, []closeEvent) error { return nil }}))
	expect.AtMost(t, partitions.Load(), 4, "partitions that were committed in three rounds of empty fetches")
}

// decoded decodes an event as a reader of its kind does.
func decoded[E Data](t *testing.T, value []byte) (Event[E], error) {
	t.Helper()
	return Options[E]{closed: orderclose.EventOrderClosed}.decode((&wire.Message{Key: []byte("a"), Value: value}).Raw())
}

// readsKind: an event comes back as it was written, with its id, and its reader skips the events of all other kinds and what is none.
func readsKind[E Data](t *testing.T, want E, id string, all map[string][]byte) {
	t.Helper()
	for name, value := range all {
		got, err := decoded[E](t, value)
		switch {
		case name == id:
			expect.That(t, err == nil && got.ID == id && cmp.Equal(got.Data, want), "%+v, %v; want %+v", got, err, want)
		case name[0] == '!':
			expect.Is(t, err, orderclose.ErrBadEvent, "%s for a reader of %s", name, id)
		default:
			expect.Is(t, err, orderclose.ErrOtherEvent, "%s for a reader of %s", name, id)
		}
	}
}

func TestRead_EachReaderReadsOneKind(t *testing.T) {
	now := time.Now().UTC().Truncate(time.Millisecond)
	closed := orderclose.OrderClosed{OrderID: "a", Category: "book", Due: now, ClosedAt: now, Path: orderclose.PathSweep, Version: 2}
	paid := orderclose.OrderPaid{OrderID: "a", Category: "book", Due: now.Add(-time.Second), PaidAt: now, Version: 2}
	late := orderclose.OrderPaidLate{OrderID: "a", PaymentID: "pi_1", Amount: 1250, Currency: "EUR", Source: "same_id", FoundAt: now}
	reminder := orderclose.OrderReminder{OrderID: "a", Category: "book", Due: now.Add(3 * time.Minute), Deadline: now.Add(2 * time.Minute),
		BeforeMillis: 120_000, RemindedAt: now}
	all := map[string][]byte{
		closed.ID(): must.Get(closed.Encode())(t), paid.ID(): must.Get(paid.Encode())(t), late.ID(): must.Get(late.Encode())(t),
		reminder.ID():             must.Get(reminder.Encode())(t),
		"of a type of tomorrow":   []byte(`{"specversion":"1.0","id":"b","type":"order.paid_twice","data":{}}`),
		"!no JSON":                []byte("order a is paid"),
		"!of tomorrow's standard": []byte(`{"specversion":"2.0","id":"b","type":"order.paid_late","data":{}}`),
	}
	readsKind(t, closed, closed.ID(), all)
	readsKind(t, paid, paid.ID(), all)
	readsKind(t, late, late.ID(), all)
	readsKind(t, reminder, reminder.ID(), all)

	field := bytes.Replace(all[late.ID()], []byte(`"amount":1250`), []byte(`"amount":1250,"fee":{"amount":3}`), 1)
	got, err := decoded[orderclose.OrderPaidLate](t, field)
	expect.That(t, err == nil && got.Data == late, "with a field of tomorrow: %+v, %v", got, err)
	text := bytes.Replace(all[late.ID()], []byte("1250"), []byte(`"12.50"`), 1)
	expect.Is(t, expect.Err(decoded[orderclose.OrderPaidLate](t, text)), orderclose.ErrBadEvent, "with an amount that is a text")
}

// Read reads the type of events that topics.yaml gives to a close.
func TestRead_ReadsTheConfiguredEvents(t *testing.T) {
	cfg := config.Default()
	cfg.Orders = &mapping.Mapping{Event: "order.receipt_confirmed"}
	a := must.Get(pipeline.New(pipeline.Options{Config: cfg}))(t)
	defer a.Close()
	o := closeOptions{}.of(a.Host())
	expect.That(t, o.closed == "order.receipt_confirmed" && o.Topic == cfg.Topics.Events, "%+v", o)
	if o := (Options[orderclose.OrderPaid]{Topic: "others"}).of(a.Host()); o.Topic != "others" {
		t.Errorf("%+v", o)
	}
}
