package webhook

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose/internal/runbook"
	"github.com/orderclose/orderclose/internal/store/sqlite"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

func TestSender_EventsOfAnOrderGoInTheirOrderAndOthersGoOn(t *testing.T) {
	inBubble(t, func(r *rig) {
		failed := 0
		r.set(func(_ context.Context, q request) (*http.Response, error) {
			if q.event == "a/1" && failed < 3 {
				failed++
				return status(http.StatusInternalServerError), nil
			}
			return status(http.StatusOK), nil
		})
		r.write("a/1", "a/2", "b/1", "a/3", "b/2")
		r.start()
		time.Sleep(3 * time.Second)
		first := r.take()
		expect.Same(t, events(of("a", first)), []string{"a/1"}, "of the order whose event was not accepted")
		expect.Same(t, events(of("b", first)), []string{"b/1", "b/2"}, "of the other")
		time.Sleep(time.Minute)
		rest := of("a", r.take())
		expect.Same(t, events(rest), []string{"a/1", "a/1", "a/1", "a/2", "a/3"}, "of the order, later")

		all := append(first, rest...)
		stamps := map[string]bool{}
		for _, q := range of("a", all) {
			expect.NoError(t, q.verify())
			expect.Equal(t, q.header.Get("Content-Type"), "application/cloudevents+json; charset=UTF-8", "content type")
			expect.Equal(t, q.stamp, fmt.Sprint(q.at.Unix()), "the timestamp")
			if q.event == "a/1" {
				expect.Equal(t, q.id, of("a", first)[0].id, "webhook-id of a further attempt")
				stamps[q.stamp] = true
			}
		}
		expect.Equal(t, len(stamps), 4, "timestamps of four attempts")
		expect.Equal(t, r.count("SELECT COUNT(*) FROM orderclose_webhook_events"), 0, "events that are kept")
	})
}

// The tries during an outage say nothing about an event. So the next wait after an answer 500 is short again.
func TestSender_AFailureAfterAnOutageCostsAMinute(t *testing.T) {
	for _, outage := range []time.Duration{time.Minute, 20 * time.Minute, 90 * time.Minute} {
		for _, events := range []int{2, 40} {
			if outage > time.Hour && events > 2 {
				continue // it takes seconds
			}
			inBubble(t, func(r *rig) {
				down := func(context.Context, request) (*http.Response, error) { return nil, errors.New("connection refused") }
				r.set(down)
				r.start()
				for i := range events {
					r.write(fmt.Sprintf("o%d/1", i))
				}
				time.Sleep(outage)
				var failed atomic.Bool
				r.set(func(_ context.Context, q request) (*http.Response, error) {
					if q.order == "o0" && !failed.Swap(true) {
						return status(http.StatusInternalServerError), nil
					}
					return status(http.StatusOK), nil
				})
				for !failed.Load() {
					time.Sleep(time.Second)
				}
				r.write("later/1")
				time.Sleep(90 * time.Second)
				expect.Equal(r, r.now().Waiting, 0, "after an outage of %v with %d events: the events that wait", outage, events)
			})
		}
	}
}

// A short row becomes the whole event.
func TestSender_ExpandsTheShortForm(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.row("ord-17", `{"due_at":"2026-03-01T12:05:00Z","closed_at":"2026-03-01T12:05:01Z","path":"sweep","release":{"ink":2}}`)
		r.start()
		time.Sleep(3 * time.Second)
		got := r.take()
		must.That(t, len(got) == 1, "%d requests", len(got))
		expect.Equal(t, got[0].event, "order.closed/ord-17", "the id of the event")
		expect.That(t, strings.Contains(got[0].body, `"quantity":2`), "%s", got[0].body)
	})
}

// A process is killed after the receiver has accepted an event, before the mark.
func TestSender_AnEventIsSentAgainAfterAKill(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.write("a/1", "a/2")
		killed := must.Get(r.step(r.Context(), nil, parallel, 0, requestTimeout+leaseMargin))(t)
		expect.Equal(t, len(killed.events), 1, "events of one order that are chosen")
		expect.NoError(t, r.sender().post(r.Context(), killed.events[0]).err)
		first := r.take()
		r.start()
		time.Sleep(requestTimeout + leaseMargin - time.Second)
		expect.Equal(t, len(r.take()), 0, "requests while the lease lasts")
		time.Sleep(5 * time.Second)
		again := r.take()
		expect.Same(t, events(again), []string{"a/1", "a/2"}, "events afterwards")
		expect.Equal(t, again[0].id, first[0].id, "webhook-id")
		expect.That(t, again[0].stamp > first[0].stamp, "timestamps %s and %s", first[0].stamp, again[0].stamp)
	})
}

// An outcome that comes after its lease has passed does not end the attempt that began meanwhile.
func TestSender_ALateFailureDoesNotMarkTheNextAttempt(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.write("a/1")
		choose := func() event {
			time.Sleep(2 * time.Second)
			chosen := must.Get(r.step(r.Context(), nil, 1, 1, time.Second))(r).events
			must.That(r, len(chosen) == 1, "attempts of the event: %d begin, want one", len(chosen))
			return chosen[0]
		}
		slow, fast := choose(), choose()
		must.Get(r.step(r.Context(), []outcome{{event: slow, err: errors.New("late"), wait: time.Hour}}, 0, 0, 0))(r)
		expect.Equal(r, choose().attempts, 3, "attempts of the event")
		must.Get(r.step(r.Context(), []outcome{{event: fast}}, 0, 0, 0))(r)
		expect.Equal(r, r.now().Waiting, 1, "events that wait while the third attempt runs")
	})
}

// A standby that lacks the last rows takes over while requests run. It gives the ids of these rows to other events.
func TestSender_AnAnswerIsThatOfItsEventOnly(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.write("a/1", "b/1")
		choose := func() []event { return must.Get(r.step(r.Context(), nil, 2, 2, time.Hour))(r).events }
		old := choose()
		must.That(r, len(old) == 2, "%d events are sent, want 2", len(old))
		must.Get(r.DB().ExecContext(r.Context(), "DELETE FROM orderclose_webhook_events"))(r)
		must.Get(r.DB().ExecContext(r.Context(), "DELETE FROM sqlite_sequence"))(r)
		r.write("a/2", "c/1")
		choose()
		must.Get(r.step(r.Context(), []outcome{{event: old[0]}, {event: old[1], err: errors.New("refused"), wait: time.Minute}}, 0, 0, 0))(r)
		expect.Equal(r, r.count("SELECT COUNT(*) FROM orderclose_webhook_events WHERE id IN (?, ?) AND error = ''", old[0].id, old[1].id), 2,
			"events with these ids that no answer has changed")
	})
}

func TestSender_TwoShareTheOrders(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.set(func(context.Context, request) (*http.Response, error) {
			time.Sleep(200 * time.Millisecond)
			return status(http.StatusOK), nil
		})
		var ids []string
		for n := range 5 {
			for order := range 40 {
				ids = append(ids, fmt.Sprintf("o%d/%d", order, n))
			}
		}
		r.write(ids...)
		stop := r.start()
		r.start()
		time.Sleep(2 * time.Second)
		stop() // the other goes on
		time.Sleep(time.Minute)
		got := r.take()
		expect.Between(t, r.most, parallel+1, 2*parallel, "requests at once")
		expect.Equal(t, len(got), len(ids), "requests")
		for order := range 40 {
			name := fmt.Sprint("o", order)
			expect.Same(t, events(of(name, got)), []string{name + "/0", name + "/1", name + "/2", name + "/3", name + "/4"}, "of an order")
		}
	})
}

// The receiver accepts nothing for five days: no event is lost, and few requests are made.
func TestSender_AnOutageLosesNothing(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.poll = 5 * time.Minute // days have many seconds
		r.set(func(context.Context, request) (*http.Response, error) { return nil, errors.New("connection refused") })
		for order := range 100 {
			r.write(fmt.Sprintf("o%d/1", order), fmt.Sprintf("o%d/2", order))
		}
		r.start()
		time.Sleep(time.Hour)
		expect.AtMost(t, len(r.take()), 90, "requests of the first hour")
		expect.That(t, r.now().Oldest > 59*time.Minute, "the oldest waits for %v", r.now().Oldest)
		expect.That(t, strings.Contains(r.now().First[0], "connection refused"), "%+v", r.now())
		time.Sleep(5 * 24 * time.Hour)
		expect.AtMost(t, len(r.take()), 5*24*80, "requests of five days")
		r.set(nil)
		time.Sleep(15 * time.Minute)
		expect.Equal(t, r.now().Waiting, 0, "events that wait")
		for order := range 100 {
			sent := events(of(fmt.Sprint("o", order), r.got))
			expect.That(t, len(sent) >= 2 && slices.IsSorted(sent), "of order %d: %v", order, sent)
		}
	})
}

// An event that the receiver refuses is tried each hour, until a person gives it up by the statement of the runbook. Its order waits.
func TestSender_ARefusedEventIsTriedForEver(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.poll = time.Minute // days have many seconds
		r.set(func(_ context.Context, q request) (*http.Response, error) {
			if q.event == "a/1" {
				return status(http.StatusUnprocessableEntity), nil
			}
			return status(http.StatusOK), nil
		})
		r.write("a/1", "a/2")
		r.start()
		time.Sleep(time.Hour)
		r.write("b/1", "a/3")
		time.Sleep(5 * 24 * time.Hour)
		tries := r.take()
		expect.Same(t, events(of("b", tries)), []string{"b/1"}, "the other order")
		expect.Between(t, len(of("a", tries)), 5*20, 5*30+15, "attempts")
		s := r.now()
		expect.That(t, s.Waiting == 3 && s.Refused == 1 && s.Behind == 2 && len(s.First) == 1 && strings.HasPrefix(s.First[0], "order a: "), "%+v", s)
		expect.That(t, strings.Contains(s.First[0], "422"), "%+v", s.First)
		waits := must.Get(r.OrderHistory(r.Context(), "a"))(t).PendingEvents
		must.That(t, len(waits) == 3, "orderclose order tells of %+v", waits)
		expect.That(t, waits[0].Webhook && waits[0].Type == "order.closed" && waits[0].Attempts >= 5*20 && strings.Contains(waits[0].Error, "422") &&
			waits[1].Error == "" && waits[1].At.After(waits[0].At.Add(-time.Second)), "%+v", waits)

		section, _ := runbook.At(runbookSection)
		statements := section.Commands("Act", "sql")
		must.That(t, len(statements) == 2, "%q", statements)
		must.Get(r.DB().ExecContext(r.Context(), statements[1]))(t) // all at once
		time.Sleep(2 * r.poll)
		expect.Same(t, events(r.take()), []string{"a/1"}, "sent at once")
		for _, s := range statements {
			must.Get(r.DB().ExecContext(r.Context(), strings.ReplaceAll(s, "ORDER", "a")))(t)
		}
		time.Sleep(3 * r.poll)
		expect.Same(t, events(r.take()), []string{"a/2", "a/3"}, "after the refused event was given up")
		expect.Equal(t, r.now().Waiting, 0, "events that wait")
	})
}

// An event that is too large for memory stays whole in the database, and is named. The receiver gets nothing of it, and all events of other orders.
func TestSender_AnEventThatIsTooLargeIsNamedAndStopsNoOther(t *testing.T) {
	inBubble(t, func(r *rig) {
		large := fmt.Sprintf(`{"specversion":"1.0","id":"big/1","source":"/shop","type":"order.closed","subject":"big","data":%q}`, strings.Repeat("x", 3<<20))
		r.write("a/1", "big/0")
		r.row("big", large)
		r.write("big/2", "b/1")
		r.start()
		time.Sleep(10 * time.Minute)
		got := events(r.take())
		slices.Sort(got)
		expect.Same(t, got, []string{"a/1", "b/1", "big/0"}, "sent")
		expect.Equal(t, r.count("SELECT COUNT(*) FROM orderclose_webhook_events WHERE order_id = 'big' AND payload = ?", large), 1, "whole events that are kept")
		expect.Equal(t, r.count("SELECT MAX(attempts) FROM orderclose_webhook_events WHERE order_id = 'big'") > 3, true, "it is tried again")
		s := r.now()
		must.That(t, s.Refused == 1 && s.Behind == 1 && len(s.First) == 1, "%+v", s)
		expect.That(t, strings.Contains(s.First[0], fmt.Sprintf("order big: the event has %d bytes", len(large))), "%q", s.First)
		must.Get(r.DB().ExecContext(r.Context(), "DELETE FROM orderclose_webhook_events WHERE order_id = 'big' AND error <> ''"))(t) // as the runbook says
		must.Get(r.DB().ExecContext(r.Context(), "UPDATE orderclose_webhook_events SET next_ms = 0"))(t)
		time.Sleep(10 * time.Second)
		expect.Same(t, events(r.take()), []string{"big/2"}, "sent after it was given up")
	})
}

// What is no CloudEvent waits, and is named, until a person repairs or deletes it.
func TestSender_ARowThatIsNoEventKeepsItsOrder(t *testing.T) {
	for _, payload := range []string{`closed`, `{"specversion":"1.0","id":"x","type":"t"}`, `{"specversion":"0.3","id":"x","type":"t","source":"s"}`} {
		inBubble(t, func(r *rig) {
			r.row("a", payload)
			r.write("a/1", "b/1")
			r.start()
			time.Sleep(10 * time.Second)
			expect.Same(t, events(r.take()), []string{"b/1"}, "sent")
			s := r.now()
			must.That(t, s.Refused == 1 && s.Behind == 1, "%+v", s)
			expect.That(t, strings.Contains(s.First[0], "no CloudEvent"), "%+v", s.First)
		})
	}
}

// A receiver that works for no order gets few requests. If it asks for a pause, and has not worked for a minute, it gets one request a minute of each
// kind, and an order none before its Retry-After.
func TestSender_ObeysRetryAfter(t *testing.T) {
	for code, most := range map[int]int{500: 450, 410: 2 * (2*parallel + 40), 429: 2*parallel + 40, 503: 2*parallel + 40} {
		inBubble(t, func(r *rig) {
			r.set(func(context.Context, request) (*http.Response, error) {
				return status(code, "Retry-After", map[int]string{429: "600", 503: "600"}[code]), nil
			})
			for order := range 100 {
				r.write(fmt.Sprintf("o%d/1", order))
			}
			r.start()
			time.Sleep(590 * time.Second)
			got := r.take()
			expect.AtMost(t, len(got), most, "requests within ten minutes, with %d", code)
			expect.That(t, code < 429 || code == 500 || len(of("o99", got)) == 1, "requests for an order within ten minutes: %d", len(of("o99", got)))
			r.set(nil)
			time.Sleep(11 * time.Minute)
			expect.Equal(t, r.now().Waiting, 0, "events that wait")
		})
	}
}

// When the process ends, a request may go on for a while, and its outcome is marked.
func TestSender_FinishesWhatItHasBegun(t *testing.T) {
	for took, sent := range map[time.Duration]int{stopTimeout - time.Second: 1, time.Minute: 0} {
		inBubble(t, func(r *rig) {
			r.set(func(ctx context.Context, _ request) (*http.Response, error) {
				select {
				case <-time.After(took):
					return status(http.StatusOK), nil
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			})
			r.write("a/1")
			stop := r.start()
			time.Sleep(1500 * time.Millisecond)
			began := time.Now()
			stop()
			expect.AtMost(t, time.Since(began), markTimeout, "the time until the process ends")
			expect.Equal(t, r.count("SELECT COUNT(*) FROM orderclose_webhook_events"), 1-sent, "events that wait, with an answer after %v", took)
		})
	}
}

// While the receiver is down, the database's clock is ahead, as before its time server is reached. Then it is set right, and the receiver works.
func TestSender_AClockThatIsSetBack(t *testing.T) {
	for _, step := range []time.Duration{10 * time.Second, time.Minute, time.Hour, 30 * 24 * time.Hour, 100 * 365 * 24 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			var ahead atomic.Int64
			db := must.Get(sqlite.Open(sqlite.Memory, func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }))(t)
			t.Cleanup(func() { db.Close() })
			r := newRigOn(t, db)
			r.set(func(context.Context, request) (*http.Response, error) { return nil, errors.New("connection refused") })
			r.start()
			r.write("before/1")
			time.Sleep(20 * time.Second)
			ahead.Store(int64(step))
			for order := range 40 {
				r.write(fmt.Sprintf("o%d/1", order))
			}
			time.Sleep(30 * time.Second)
			ahead.Store(0)
			time.Sleep(5 * time.Second)
			expect.Between(t, r.now().Oldest, 5*time.Second, 2*time.Minute+step, "the age of the oldest event, a step of %v", step)
			r.set(nil)
			time.Sleep(longestPause + 5*time.Second) // an event has just failed for the last time, and the next look finds it
			expect.Equal(t, r.now().Waiting, 0, "events that wait after the longest pause, of a clock that was set back by %v", step)
		})
	}
}

// The database does not answer for a while: what was sent meanwhile is marked later, and nothing is sent twice.
func TestSender_MarksLaterWhileTheDatabaseIsAway(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.set(func(context.Context, request) (*http.Response, error) {
			_, err := r.DB().ExecContext(r.Context(), "ALTER TABLE orderclose_webhook_state RENAME TO gone")
			must.Do(r, err)
			return status(http.StatusOK), nil
		})
		r.write("a/1")
		r.start()
		time.Sleep(10 * time.Second)
		_, err := r.DB().ExecContext(r.Context(), "ALTER TABLE gone RENAME TO orderclose_webhook_state")
		must.Do(r, err)
		time.Sleep(time.Minute)
		expect.Equal(t, len(r.take()), 1, "requests")
		expect.Equal(t, r.now().Waiting, 0, "events that wait")
		expect.That(t, strings.Contains(r.log.String(), "events cannot be read or marked"), "%s", r.log.String())
		synctest.Wait()
	})
}

// The alert on events that wait goes by this metric alone.
func TestSender_EventsThatCannotBeReadCountAsWaiting(t *testing.T) {
	inBubble(t, func(r *rig) {
		m, s := testkit.NewMetrics(), r.sender()
		s.metrics = must.Get(newMetrics(m))(r)
		defer testkit.Start(r.T, s.Run)()
		time.Sleep(time.Minute)
		must.Do(r, r.Close())
		time.Sleep(10 * time.Minute)
		expect.Between(t, m.Value("webhook_oldest_waiting_seconds"), 580, 620, "seconds for which an event may wait")
	})
}

func TestLane_RequestsWithoutAnAnswerHoldAFewLargeEvents(t *testing.T) {
	const kept, all = maxSlowBytes / wire.MaxRecordBytes, 20
	var l lane
	ended := 0
	for range all {
		large := event{body: make([]byte, wire.MaxRecordBytes)}
		l.inFlight = append(l.inFlight, &attempt{event: large, end: func() { ended++ }})
	}
	l.moveSlow(time.Second)
	expect.Equal(t, ended, all-kept, "how many of %d requests end", all)
}
