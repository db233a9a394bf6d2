package ops

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/compensator"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/ops/deadletters"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

// outbox is a schedule outbox in memory.
type outbox []wire.OutboxRow

func (o outbox) PendingSchedules(_ context.Context, after int64, limit int) (rows []wire.OutboxRow, err error) {
	for _, r := range o {
		if r.ID > after && len(rows) < limit {
			rows = append(rows, r)
		}
	}
	return rows, nil
}

type badOutbox struct{}

func (badOutbox) PendingSchedules(context.Context, int64, int) ([]wire.OutboxRow, error) {
	return nil, errors.New("no such table")
}

// letters returns what reads the dead letters of the orders, on an embedded broker. The last one was discarded.
func letters(t *testing.T, orders ...string) func(context.Context) (*deadletters.Index, error) {
	t.Helper()
	broker := must.Get(kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "dead")))(t)
	t.Cleanup(broker.Close)
	log := must.Get(kafka.New(kafka.Options{Brokers: broker.ListenAddrs()}))(t)
	t.Cleanup(log.Close)
	for i, id := range orders {
		m := must.Get(wire.Record{Order: orderclose.Order{ID: id, CreatedAt: now, Due: now}, Release: now}.Encode())(t)
		must.Get(log.Append(t.Context(), "dead", 0, []wire.Message{wire.DeadLetter(m, "closer", "failed", "no stock row")}))(t)
		if i == len(orders)-1 {
			must.Get(log.Append(t.Context(), "dead", 0, []wire.Message{wire.Resolution{Offset: int64(i), How: wire.Discarded}.Encode([]byte(id))}))(t)
		}
	}
	return func(ctx context.Context) (*deadletters.Index, error) {
		_, x, err := (&deadletters.Topic{Log: log, Name: "dead"}).Index(ctx, deadletters.Filter{})
		return x, err
	}
}

// causes returns cause and place of the orders, page by page.
func causes(t *testing.T, i Investigator, pages ...[]string) (all []string) {
	t.Helper()
	i.Logger = slog.New(slog.DiscardHandler)
	n := must.Get(i.Begin(t.Context()))(t)
	for _, ids := range pages {
		var missed []orderclose.Order
		for _, id := range ids {
			missed = append(missed, orderclose.Order{ID: id})
		}
		for k, m := range n.Explain(t.Context(), missed) {
			expect.Equal(t, m.Order.ID, ids[k], "the order of a miss")
			all = append(all, fmt.Sprintf("%s %s %s: %s", m.Order.ID, m.Cause, m.Where, m.Fix))
		}
	}
	return all
}

// Order a, in partition 0 of two, and f, in partition 1, have no row and no dead letter.
func TestExplain_SaysWhatIsCheapToKnow(t *testing.T) {
	at := func(partition int, waiting int64, overdue float64) []PartitionStatus {
		p := []PartitionStatus{{Partition: 0}, {Partition: 1}}
		p[partition].Waiting, p[partition].Overdue = waiting, overdue
		return p
	}
	of := func(id string) int { return kafka.PartitionOf([]byte(id), 2) }
	must.That(t, of("a") != of("f"), "choose other ids")
	rows := make(outbox, 12_000)
	for i := range rows {
		rows[i] = wire.OutboxRow{ID: int64(i + 1), OrderID: fmt.Sprint("o", i)}
	}
	dead, asked := letters(t, "dead", "o7", "discarded"), 0
	status := func(topics ...TopicStatus) func(context.Context) Status {
		return func(context.Context) Status { asked++; return Status{Topics: topics} }
	}
	bucket := func(p []PartitionStatus) TopicStatus { return TopicStatus{Topic: "delay_5m", Partitions: p} }
	closes := func(p []PartitionStatus) TopicStatus { return TopicStatus{Topic: "close", Partitions: p, close: true} }
	idle := at(0, 0, 0)
	onItsWay := func(topic string) string { return fmt.Sprintf("a on_its_way %s/%d: orderclose status", topic, of("a")) }
	for name, c := range map[string]struct {
		topics []TopicStatus
		pages  [][]string
		want   []string
	}{
		"a row, also of an order with a dead letter": {[]TopicStatus{bucket(idle), closes(idle)}, [][]string{{"o11999", "o0", "o7"}}, []string{
			"o11999 unpublished outbox_schedules row 12000: orderclose run outbox", "o0 unpublished outbox_schedules row 1: orderclose run outbox",
			"o7 unpublished outbox_schedules row 8: orderclose run outbox"}},
		"a dead letter, pending and not": {[]TopicStatus{bucket(idle), closes(at(of("dead"), 1, 0))}, [][]string{{"dead"}, {"discarded"}}, []string{
			"dead dead_lettered dead letter 0/0: orderclose dlq redrive --order dead", "discarded unknown : orderclose order discarded"}},
		"the relay is behind in one partition": {[]TopicStatus{bucket(at(of("a"), 9, 3)), closes(idle)}, [][]string{{"a", "f"}}, []string{
			onItsWay("delay_5m"), "f unknown : orderclose order f"}},
		"records wait in a delay topic, and leave in time": {[]TopicStatus{bucket(at(of("a"), 9, 1)), closes(idle)}, [][]string{{"a"}}, []string{
			"a unknown : orderclose order a"}},
		"the closer is behind": {[]TopicStatus{bucket(idle), closes(at(of("a"), 1, 0))}, [][]string{{"a"}, {"f"}, {"a"}}, []string{
			onItsWay("close"), "f unknown : orderclose order f", onItsWay("close")}},
		"a topic is not known, and another is": {[]TopicStatus{{Topic: "delay_5m", Problem: "no such topic"}, closes(at(of("a"), 1, 0))},
			[][]string{{"a", "f"}}, []string{
				onItsWay("close"), "f unknown delay_5m: no such topic: orderclose order f"}},
		"a partition is not known": {[]TopicStatus{bucket([]PartitionStatus{{Partition: 0, Problem: "away"}, {Partition: 1, Problem: "away"}})},
			[][]string{{"a"}}, []string{
				fmt.Sprintf("a unknown delay_5m/%d: away: orderclose order a", of("a"))}},
	} {
		asked = 0
		got := causes(t, Investigator{Schedules: rows, Letters: dead, Status: status(c.topics...)}, c.pages...)
		expect.Same(t, got, c.want, "%s", name)
		expect.Equal(t, asked, 1, "%s: how often a sweep reads the status", name)
	}
}

func TestExplain_AFailureIsReportedAsUnknownWithItsReason(t *testing.T) {
	away := func(context.Context) (*deadletters.Index, error) { return nil, errors.New("away") }
	for what, c := range map[string]struct {
		i    Investigator
		want string
	}{
		"no Kafka":         {Investigator{}, "no Kafka is configured"},
		"the dead letters": {Investigator{Letters: away}, "the dead letters: away"},
		"the outbox":       {Investigator{Letters: letters(t), Schedules: badOutbox{}}, "the schedule outbox: no such table"},
	} {
		expect.Same(t, causes(t, c.i, []string{"a"}), []string{"a unknown " + c.want + ": orderclose order a"}, "%s", what)
	}
}

var now = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func TestFixOne_CanBePastedIntoAShell(t *testing.T) {
	for id, want := range map[string]string{
		"order-17": "orderclose order order-17", "a b": "orderclose order 'a b'",
		"it's; rm": `orderclose order 'it'\''s; rm'`, "-x": "orderclose order '-x'",
	} {
		expect.Equal(t, fixOne(compensator.Unknown, id), want, "%q", id)
	}
	for _, c := range append(compensator.Causes(), "of an earlier version") {
		expect.That(t, FixCommand(c) != "" && fixOne(c, "o") != "", "nothing fixes %s", c)
	}
}
