package intake

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

var shopOrders = testkit.TopicPartition{Topic: "shop.orders"}

// canalInsert returns a Canal record with a row for each id, which is due in the given time.
func canalInsert(in time.Duration, ids ...string) wire.Message {
	var rows []string
	for _, id := range ids {
		rows = append(rows, fmt.Sprintf(`{"id": %q, "state": "0", "due": "%d"}`, id, time.Now().Add(in).UnixMilli()))
	}
	return wire.Message{Value: []byte(`{"data": [` + strings.Join(rows, ", ") + `], "database": "shop", "table": "orders", "isDdl": false, "type": "INSERT"}`)}
}

// start runs an Intake of Canal records until stop is called.
func start(t *testing.T, log *testkit.Log, metrics prometheus.Registerer) (stop func()) {
	t.Helper()
	i := must.Get(New(Options{
		Log: log, Group: "g", Topic: shopOrders.Topic, Format: Canal, CloseTopic: "close", DeadLetterTopic: "dead",
		Current: func() orderclose.Buckets {
			return orderclose.Buckets{{Topic: "delay_10s", Length: 10 * time.Second}, {Topic: "delay_1m", Length: time.Minute}}
		},
		Orders: &mapping.Mapping{
			Orders: "orders", ID: mapping.Key{Column: "id"}, Due: mapping.TimeColumn{Column: "due", Type: mapping.UnixMillis},
			Status: mapping.Status{Column: "state", From: mapping.OneOf{mapping.IntValue(0)}},
		},
		Now: time.Now, OnHang: func(why string) { t.Error(why) }, Registerer: metrics,
	}))(t)
	return testkit.Start(t, i.Run)
}

func TestIntake_EachUnpaidRowBecomesARecordOfAProducer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, m := &testkit.Log{}, testkit.NewMetrics()
		log.Put(shopOrders, canalInsert(time.Minute, "a", "b"))
		log.Put(shopOrders, canalInsert(-time.Minute, "overdue"))
		log.Put(shopOrders, canalInsert(-3*time.Hour, "long"))
		log.Put(shopOrders, wire.Message{Value: []byte("soon")})
		log.Put(shopOrders, wire.Message{Key: []byte("tombstone")})
		log.Put(shopOrders, canalInsert(20*time.Second, "a"))
		due := time.Now().Add(time.Minute).UnixMilli()
		defer start(t, log, m)()
		time.Sleep(time.Second)
		expect.Same(t, [][]string{log.Keys("delay_1m"), log.Keys("close"), log.Keys("delay_10s")}, [][]string{{"a", "b"}, {"overdue"}, {"a"}}, "in three topics")
		expect.Equal(t, log.DoneBelow(shopOrders), 6, "done below")
		first := log.Appended()["delay_1m"][0]
		r, err := first.Decode()
		expect.That(t, err == nil && r.Order.Due.UnixMilli() == due && r.Release.UnixMilli() == due, "%+v %v", r, err)
		dead := log.Appended()["dead"]
		expect.That(t, len(dead) == 1 && string(dead[0].Value) == "soon", "%v", dead)
		got := []float64{m.Value("intake_rows_total", "outcome", "scheduled"), m.Value("intake_rows_total", "outcome", "overdue"),
			m.Value("intake_rows_total", "outcome", "no_row"), m.Value("dead_letters_total", "stage", "intake", "cause", "bad_value")}
		expect.Same(t, got, []float64{4, 1, 1, 1}, "rows scheduled, overdue and ignored, and dead letters")
	})
}

// The record is done with the ack of its last row: a crash before must not lose the others.
func TestIntake_ARecordWithSeveralRowsIsDoneWithItsLastRow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var refuses atomic.Bool
		refuses.Store(true)
		log, m := &testkit.Log{Fail: func(topic string) error {
			if topic == "close" && refuses.Load() {
				return errors.New("no leader")
			}
			return nil
		}}, testkit.NewMetrics()
		both := canalInsert(time.Minute, "a", "b")
		both.Value = []byte(strings.Replace(string(both.Value), `"}, {`, `"}, {"id": "now", "state": 0, "due": 1000000000000}, {`, 1)) // long overdue
		value := strings.Replace(string(both.Value), "1000000000000", fmt.Sprint(time.Now().UnixMilli()), 1)
		log.Put(shopOrders, wire.Message{Value: []byte(value)})
		defer start(t, log, m)()
		time.Sleep(time.Minute)
		expect.That(t, log.DoneBelow(shopOrders) == 0 && len(log.Keys("delay_1m")) == 2, "done below %d, %v", log.DoneBelow(shopOrders), log.Keys("delay_1m"))
		behind := time.Since(time.Unix(int64(m.Value("intake_behind_since_timestamp_seconds")), 0))
		expect.That(t, behind >= 50*time.Second && behind < time.Hour, "%v behind", behind)
		refuses.Store(false)
		time.Sleep(2 * time.Minute) // attempts are a minute apart, and some seconds
		expect.That(t, log.DoneBelow(shopOrders) == 1 && len(log.Keys("close")) == 1 && m.Value("intake_behind_since_timestamp_seconds") == 0,
			"done below %d, %v", log.DoneBelow(shopOrders), log.Keys("close"))
	})
}

// Nor is it done before the dead letters are acked of the rows that Kafka refuses for good.
func TestIntake_ARecordWithRefusedRowsIsDoneWithItsDeadLetters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &testkit.Log{Fail: testkit.Rejects(time.Minute, "dead"), Answer: func(_ context.Context, topic string, _ int, keys []string) error {
			if topic == "delay_1m" && keys[0] != "c" {
				return wire.ErrRefused
			}
			return nil
		}}
		log.Put(shopOrders, canalInsert(time.Minute, "a", "b", "c"))
		defer start(t, log, nil)()
		time.Sleep(50 * time.Second)
		expect.That(t, log.DoneBelow(shopOrders) == 0 && len(log.Keys("delay_1m")) == 1, "done below %d before the dead letters", log.DoneBelow(shopOrders))
		time.Sleep(time.Minute)
		must.That(t, log.DoneBelow(shopOrders) == 1 && len(log.Keys("dead")) == 2, "done below %d, %v", log.DoneBelow(shopOrders), log.Keys("dead"))
		from, _ := log.Appended()["dead"][1].Header(wire.HeaderSourceOffset)
		expect.Equal(t, from, "0", "the offset of the record in a dead letter")
	})
}

// Only the row that cannot be scheduled waits for the sweep. Its record becomes a dead letter.
func TestIntake_ABadRowKeepsNoOtherFromBeingScheduled(t *testing.T) {
	for _, ids := range [][]string{{"a", "b", "bad", "c"}, {"a", "bad"}, {"bad", "a"}, {"bad"}} {
		synctest.Test(t, func(t *testing.T) {
			log, good := &testkit.Log{}, []string{}
			for i, id := range ids {
				if id == "bad" {
					ids[i] = strings.Repeat("0123456789", 40) // too long
				} else {
					good = append(good, id)
				}
			}
			log.Put(shopOrders, canalInsert(time.Minute, ids...))
			log.Put(shopOrders, canalInsert(time.Minute, "next"))
			defer start(t, log, nil)()
			time.Sleep(5 * time.Second)
			expect.That(t, slices.Equal(log.Keys("delay_1m"), append(good, "next")) && len(log.Appended()["dead"]) == 1 && log.DoneBelow(shopOrders) == 2,
				"%v: scheduled %v, %d dead letters, done below %d", good, log.Keys("delay_1m"), len(log.Appended()["dead"]), log.DoneBelow(shopOrders))
		})
	}
}

// While a topic accepts no records, the records of an order keep their order, and the bucket is picked again for each attempt.
func TestIntake_RecordsOfAnOrderKeepTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var refuses atomic.Bool
		refuses.Store(true)
		log := &testkit.Log{Fail: func(string) error {
			if refuses.Load() {
				return errors.New("no leader")
			}
			return nil
		}}
		put := func(n int) { log.Put(shopOrders, canalInsert(time.Minute+time.Duration(n)*time.Second, "a")) }
		put(0) // the topic exists at the start
		stop := start(t, log, nil)
		for n := range 4 {
			time.Sleep(time.Second)
			put(n + 1)
		}
		time.Sleep(5 * time.Minute)
		refuses.Store(false)
		time.Sleep(2 * time.Minute) // attempts are a minute apart, and some seconds
		stop()
		last := int64(0)
		for _, r := range log.Appended()["close"] {
			d, err := r.Decode()
			expect.That(t, err == nil && d.Order.Due.UnixMilli() > last, "%+v %v after %d", d, err, last)
			last = d.Order.Due.UnixMilli()
		}
		expect.That(t, len(log.Keys("close")) == 5 && log.DoneBelow(shopOrders) == 5,
			"%d records, done below %d", len(log.Keys("close")), log.DoneBelow(shopOrders))
	})
}

// A bucket accepts no records. The orders of other buckets go on, and no order overtakes itself.
func TestIntake_ATopicThatAcceptsNothingHoldsUpNoOtherOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &testkit.Log{Fail: testkit.Rejects(2*time.Minute, "delay_1m")}
		log.Put(shopOrders, canalInsert(10*time.Minute, "stuck"))
		defer start(t, log, nil)()
		time.Sleep(time.Second)
		worst := time.Duration(0)
		for n := range 60 {
			id := fmt.Sprint("soon", n)
			log.Put(shopOrders, canalInsert(0, id))
			put := time.Now()
			for !slices.Contains(log.Keys("close"), id) && time.Since(put) < time.Minute {
				time.Sleep(10 * time.Millisecond)
			}
			worst = max(worst, time.Since(put))
			time.Sleep(time.Second)
		}
		expect.That(t, worst <= 200*time.Millisecond, "an order of another topic waited for %v", worst)
		log.Put(shopOrders, canalInsert(0, "stuck")) // it is due now, and waits behind its earlier record
		time.Sleep(5 * time.Minute)
		expect.Equal(t, log.DoneBelow(shopOrders), 62, "done below")
	})
}
