package webhook

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose/internal/runbook"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
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
		expect.Equal(t, r.count("SELECT COUNT(*) FROM webhook_events WHERE done_ms IS NOT NULL AND dead = 0 AND next_ms IS NULL"), 5, "events that were sent")
		expect.Equal(t, r.now().Waiting, 0, "events that wait")
	})
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
		killed := must.Get(r.step(r.Context(), nil, parallel, requestTimeout+leaseMargin))(t)
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
			chosen := must.Get(r.step(r.Context(), nil, 1, time.Second))(r).events
			must.That(r, len(chosen) == 1, "attempts of the event: %d begin, want one", len(chosen))
			return chosen[0]
		}
		slow, fast := choose(), choose()
		must.Get(r.step(r.Context(), []outcome{{event: slow, err: errors.New("late"), wait: time.Hour}}, 0, 0))(r)
		expect.Equal(r, choose().attempts, 3, "attempts of the event")
		must.Get(r.step(r.Context(), []outcome{{event: fast}}, 0, 0))(r)
		expect.Equal(r, r.now().Waiting, 1, "events that wait while the third attempt runs")
	})
}

func TestSender_TwoShareTheOrders(t *testing.T) {
	inBubble(t, func(r *rig) {
		by := map[string]int{}
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
		for _, q := range got {
			by[q.event]++
		}
		expect.That(t, r.most > parallel && r.most <= 2*parallel, "%d requests at once", r.most)
		expect.That(t, len(by) == 200 && len(got) == 200, "%d events by %d requests, want each once", len(by), len(got))
		for order := range 40 {
			sent := events(of(fmt.Sprint("o", order), got))
			expect.That(t, slices.IsSorted(sent), "the order of the events of an order: %v", sent)
		}
	})
}

// The receiver accepts nothing for five days: no event is given up, and few requests are made.
func TestSender_AnOutageGivesUpNothing(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.poll = 5 * time.Minute // days have many seconds
		r.set(func(context.Context, request) (*http.Response, error) { return nil, errors.New("connection refused") })
		for order := range 100 {
			r.write(fmt.Sprintf("o%d/1", order), fmt.Sprintf("o%d/2", order))
		}
		r.start()
		time.Sleep(time.Hour)
		expect.AtMost(t, len(r.take()), 16+100, "requests of the first hour")
		expect.That(t, r.now().Oldest > 59*time.Minute, "the oldest waits for %v", r.now().Oldest)
		expect.That(t, strings.Contains(r.now().LastError, "connection refused"), "the last error is %q", r.now().LastError)
		time.Sleep(5 * 24 * time.Hour)
		expect.AtMost(t, len(r.take()), 5*24*80, "requests of five days")
		r.set(nil)
		time.Sleep(2 * time.Hour)
		expect.That(t, r.now().Waiting == 0 && r.now().Dead == 0, "%+v", r.now())
		for order := range 100 {
			sent := events(of(fmt.Sprint("o", order), r.got))
			expect.That(t, len(sent) >= 2 && slices.IsSorted(sent), "of order %d: %v", order, sent)
		}
	})
}

func TestSender_AnEventThatIsNeverAcceptedIsADeadLetter(t *testing.T) {
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
		r.write("b/1")
		time.Sleep(giveUpAfter - 2*time.Hour)
		tries := r.take()
		expect.Same(t, events(of("b", tries)), []string{"b/1"}, "the other order")
		expect.Between(t, len(of("a", tries)), 70, 100, "attempts")
		expect.Equal(t, r.now().Dead, 0, "dead letters before the time")
		time.Sleep(4 * time.Hour)
		s := r.now()
		expect.That(t, s.Dead == 1 && s.Waiting == 0 && len(s.Letters) == 1 && s.Letters[0].Order == "a", "%+v", s)
		expect.That(t, strings.Contains(s.Letters[0].Error, "422"), "%+v", s.Letters)
		expect.That(t, strings.Contains(r.log.String(), `msg="event given up"`), "the log")
		got := of("a", r.take())
		expect.Equal(t, events(got)[len(got)-1], "a/2", "what follows the dead letter")

		// It is kept, and the statement of the runbook has it sent again, with the same webhook-id.
		time.Sleep(2 * 24 * time.Hour)
		expect.Equal(t, r.now().Dead, 1, "dead letters two days later")
		r.set(nil)
		r.take()
		section, _ := runbook.At(runbookSection)
		must.Get(r.DB().ExecContext(r.Context(), strings.Join(section.Commands("Act", "sql"), " ")))(t)
		time.Sleep(2 * r.poll)
		again := r.take()
		expect.Same(t, events(again), []string{"a/1"}, "sent again")
		expect.Equal(t, again[0].id, tries[0].id, "webhook-id")
		expect.Equal(t, r.now().Dead, 0, "dead letters afterwards")
	})
}

// What is no CloudEvent is a dead letter at once, since no attempt can succeed.
func TestSender_ARowThatIsNoEventIsADeadLetter(t *testing.T) {
	inBubble(t, func(r *rig) {
		for _, payload := range []string{`closed`, `{"specversion":"1.0","id":"x","type":"t"}`, `{"specversion":"0.3","id":"x","type":"t","source":"s"}`} {
			r.row("a", payload)
		}
		r.write("a/1")
		r.start()
		time.Sleep(10 * time.Second)
		expect.Same(t, events(r.take()), []string{"a/1"}, "sent")
		expect.Equal(t, r.now().Dead, 3, "dead letters")
		expect.That(t, strings.Contains(r.now().Letters[0].Error, "no CloudEvent"), "%+v", r.now().Letters)
	})
}

func TestSender_ObeysRetryAfter(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.set(func(context.Context, request) (*http.Response, error) {
			return status(http.StatusTooManyRequests, "Retry-After", "600"), nil
		})
		r.write("a/1")
		r.start()
		time.Sleep(5 * time.Second)
		r.write("b/1")
		time.Sleep(590 * time.Second)
		expect.Same(t, events(r.take()), []string{"a/1"}, "requests within ten minutes")
		r.set(nil)
		time.Sleep(20 * time.Second)
		expect.Equal(t, len(r.take()), 2, "requests afterwards")
	})
}

func TestSender_GoneIsAskedOnceAMinute(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.set(func(context.Context, request) (*http.Response, error) { return status(http.StatusGone), nil })
		for order := range 50 {
			r.write(fmt.Sprintf("o%d/1", order))
		}
		r.start()
		time.Sleep(parallel * time.Second)
		expect.AtMost(t, len(r.take()), parallel, "requests at first")
		time.Sleep(20 * time.Minute)
		expect.AtMost(t, len(r.take()), 30, "requests within 20 minutes")
		r.set(nil)
		time.Sleep(10 * time.Minute)
		expect.Equal(t, r.now().Waiting, 0, "events that wait")
	})
}

// Requests that hang take some of the places, and end with the timeout. Other orders go on.
func TestSender_AHangingRequestKeepsNoOtherOrder(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.set(func(ctx context.Context, q request) (*http.Response, error) {
			if q.order == "hangs" {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return status(http.StatusOK), nil
		})
		r.write("hangs/1", "hangs/2")
		r.start()
		for n := range 20 {
			r.write(fmt.Sprintf("o%d/1", n))
			time.Sleep(time.Second)
		}
		time.Sleep(2 * time.Second)
		got := r.take()
		for n := range 20 {
			expect.Equal(t, len(of(fmt.Sprint("o", n), got)), 1, "requests for order %d", n)
		}
		expect.AtMost(t, len(of("hangs", got)), 2, "requests that hang")
		expect.That(t, strings.Contains(r.now().LastError, "deadline exceeded"), "the last error is %q", r.now().LastError)
	})
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
			expect.Equal(t, r.count("SELECT COUNT(*) FROM webhook_events WHERE done_ms IS NOT NULL"), sent, "events that are marked, after %v", took)
			expect.Equal(t, r.count("SELECT COUNT(*) FROM webhook_events WHERE next_ms IS NOT NULL"), 1-sent, "events that wait")
		})
	}
}

func TestSender_KeepsWhatWasSentForSevenDays(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.poll = 5 * time.Minute // days have many seconds
		r.set(func(_ context.Context, q request) (*http.Response, error) {
			if q.order == "waits" {
				return nil, errors.New("no")
			}
			return status(http.StatusOK), nil
		})
		r.write("waits/1", "a/1", "b/1")
		r.start()
		time.Sleep(time.Hour)
		r.write("c/1")
		time.Sleep(keepSent - 2*time.Hour)
		must.Do(r, r.forget(r.Context()))
		expect.Equal(t, r.count("SELECT COUNT(*) FROM webhook_events"), 4, "events within seven days")
		time.Sleep(time.Hour + 30*time.Minute)
		must.Do(r, r.forget(r.Context()))
		expect.Equal(t, r.count("SELECT COUNT(*) FROM webhook_events WHERE order_id IN ('waits', 'c')"), 2, "events afterwards")
		expect.Equal(t, r.count("SELECT COUNT(*) FROM webhook_events"), 2, "all events afterwards")
	})
}

// The database does not answer for a while: what was sent meanwhile is marked later, and nothing is sent twice.
func TestSender_MarksLaterWhileTheDatabaseIsAway(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.set(func(context.Context, request) (*http.Response, error) {
			_, err := r.DB().ExecContext(r.Context(), "ALTER TABLE webhook_state RENAME TO gone")
			must.Do(r, err)
			return status(http.StatusOK), nil
		})
		r.write("a/1")
		r.start()
		time.Sleep(10 * time.Second)
		_, err := r.DB().ExecContext(r.Context(), "ALTER TABLE gone RENAME TO webhook_state")
		must.Do(r, err)
		time.Sleep(time.Minute)
		expect.Equal(t, len(r.take()), 1, "requests")
		expect.Equal(t, r.now().Waiting, 0, "events that wait")
		expect.That(t, strings.Contains(r.log.String(), "events cannot be read or marked"), "%s", r.log.String())
		synctest.Wait()
	})
}
