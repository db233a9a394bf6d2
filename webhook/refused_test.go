package webhook

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/ring"
)

// refusing is a receiver that accepts no event of some orders.
type refusing struct {
	share  int           // of all orders, in percent
	run    int           // the share is the first of so many orders that follow each other; 0: each order by chance
	status []int         // of the answers, one for each tenant whose orders are refused
	after  int           // Retry-After, in seconds; 0: none
	flukes int           // of ten thousand other requests, those without an answer
	rate   int           // orders a second
	takes  time.Duration // until each answer to a refused order
}

// Instead of a status.
const noAnswer, noConnection = 0, 1

// refusingBy returns the receiver of a seed.
func refusingBy(seed uint64) refusing {
	r := rand.New(rand.NewPCG(seed, 66))
	pick := func(of ...int) int { return of[r.IntN(len(of))] }
	f := refusing{
		share: pick(1, 5, 10, 20, 40), run: pick(0, 0, 20, 50, 100), flukes: pick(0, 20), rate: pick(1, 2, 5, 20), after: pick(0, 0, 1, 60, 3600),
		takes: time.Duration(pick(0, 0, 1, 3, 8, 14, 30)) * time.Second,
	}
	for range pick(1, 1, 3) {
		f.status = append(f.status, pick(noAnswer, noConnection, 200, 307, 400, 401, 403, 404, 405, 407, 408, 409, 410, 422, 425, 429, 500, 502, 503, 504))
	}
	return f
}

// answer answers a request for an order, whose name begins with the number of the refused tenant.
func (f refusing) answer(ctx context.Context, order string) (*http.Response, error) {
	tenant := 0
	if _, err := fmt.Sscanf(order, "%d", &tenant); err != nil {
		time.Sleep(20 * time.Millisecond)
		return status(http.StatusOK), nil
	}
	code, takes := f.status[tenant], f.takes
	if code == noAnswer {
		takes = time.Hour
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(takes):
	}
	switch {
	case code == noConnection:
		return nil, errors.New("connection refused")
	case f.after > 0:
		return status(code, "Retry-After", fmt.Sprint(f.after)), nil
	default:
		return status(code), nil
	}
}

// play lets orders close for some time, a tenth of them with a second event half a minute later. It returns how late the events of the orders that
// are not refused arrived.
func (f refusing) play(r *rig, seed uint64, during time.Duration) (late []time.Duration) {
	random, mu := rand.New(rand.NewPCG(seed, 1)), sync.Mutex{}
	chance := func(of, most int) bool {
		mu.Lock()
		defer mu.Unlock()
		return random.IntN(most) < of
	}
	var flukes atomic.Int64 // their repeats wait behind those of the refused
	r.set(func(ctx context.Context, q request) (*http.Response, error) {
		if strings.HasPrefix(q.order, "good") && chance(f.flukes, 10_000) {
			flukes.Add(1)
			return nil, errors.New("connection reset")
		}
		return f.answer(ctx, q.order)
	})
	r.start()
	written, refused, orders := map[string]time.Time{}, 0, []string{}
	write := func(id string) {
		if r.write(id); strings.HasPrefix(id, "good") {
			written[id] = time.Now()
		} else {
			refused++
		}
	}
	for i := range int(during.Seconds()) * f.rate {
		order := fmt.Sprint("good", i)
		if f.run > 0 && i%f.run < f.share*f.run/100 || f.run == 0 && chance(f.share, 100) {
			order = fmt.Sprintf("%d bad %d", i%len(f.status), i)
		}
		orders = append(orders, order)
		write(order + "/1")
		if second := i - 30*f.rate; second >= 0 && second%10 == 0 {
			write(orders[second] + "/2")
		}
		time.Sleep(time.Second / time.Duration(f.rate))
	}
	time.Sleep(time.Minute)
	accepts := slices.Contains(f.status, http.StatusOK) // in time or not
	arrived := map[string]bool{}
	for _, q := range r.take() {
		if sent, good := written[q.event]; good && !arrived[q.event] {
			expect.That(r, strings.HasSuffix(q.event, "/1") || arrived[q.order+"/1"], "%s arrives before the first event of its order", q.event)
			arrived[q.event], late = true, append(late, q.at.Sub(sent))
		}
	}
	waiting, most := r.now().Waiting, refused+2*int(flukes.Load()) // an order may have two events
	expect.That(r, (waiting >= refused || accepts) && waiting <= most, "%d events wait after the last one, want %d to %d: %+v", waiting, refused, most, r.now())
	expect.That(r, len(arrived)+2*int(flukes.Load()) >= len(written), "%d events of other orders were sent, want %d", len(arrived), len(written))
	slices.Sort(late)
	return late
}

func (f refusing) test(t *testing.T, seed uint64, during time.Duration) {
	t.Run(fmt.Sprintf("%+v", f), func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			late := f.play(newRig(t), seed, during)
			must.That(t, len(late) > 0, "no event arrived")
			p99 := late[len(late)*99/100]
			expect.AtMost(t, p99, 10*time.Second, "p99 of the events of other orders")
			t.Logf("p50 %v, p99 %v, latest %v", late[len(late)/2], p99, late[len(late)-1])
		})
	})
}

// A receiver that accepts no event of some orders gets those of all others in time, whatever it answers to the refused ones.
func TestSender_RefusedEventsDelayNoOthers(t *testing.T) {
	for seed, f := range []refusing{
		{share: 40, status: []int{noAnswer}, rate: 1},
		{share: 10, status: []int{noAnswer}, rate: 20, flukes: 20},
		{share: 20, status: []int{200}, takes: 8 * time.Second, rate: 10},
		{share: 40, run: 100, status: []int{500}, after: 60, rate: 1},
		{share: 20, status: []int{422}, rate: 2},
		{share: 10, status: []int{410, 429, 503}, after: 3600, rate: 1},
	} {
		f.test(t, uint64(seed), 10*time.Minute/time.Duration(f.rate/5+1))
	}
}

func TestSender_RefusedEventsOfAnyKindDelayNoOthers(t *testing.T) {
	ring.NotShort(t)
	seeds := uint64(6)
	if ring.All() {
		seeds = 40
	}
	for seed, after := ring.Seeds(seeds); seed < after; seed++ {
		f := refusingBy(seed)
		f.test(t, seed, 20*time.Minute/time.Duration(f.rate/5+1))
	}
}
