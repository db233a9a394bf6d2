package httpcall

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/expect"
)

// slowBody is a body that arrives at once and ends when end is closed. It counts what is read of it.
type slowBody struct {
	from io.Reader
	end  chan struct{}
	read *atomic.Int64
}

func (b slowBody) Read(p []byte) (int, error) {
	n, err := b.from.Read(p)
	b.read.Add(int64(n))
	if err == io.EOF {
		<-b.end
	}
	return n, err
}

// TestReceive_HoldsAFewBodiesOfStrangers: strangers send many of the largest requests at once. Those without headers of
// a signature, or with old ones, are not read. The others, whose signatures are wrong, take a bounded amount of memory together, and
// the requests of the right sender are received when they are gone.
func TestReceive_HoldsAFewBodiesOfStrangers(t *testing.T) {
	large := bytes.Repeat([]byte(" "), MaxRequest-1)
	for name, c := range map[string]struct {
		sign         func(h http.Header)
		mostRead     int64
		status, last int
	}{
		"no headers":        {func(http.Header) {}, 0, 401, 401},
		"an old signature":  {func(h http.Header) { testKeys.Sign(h, "m", time.Now().Add(-time.Hour), large) }, 0, 401, 401},
		"a wrong signature": {func(h http.Header) { testKeys.Sign(h, "m", time.Now(), []byte("other")) }, maxBodies, 401, 503},
	} {
		var read atomic.Int64
		statuses := map[int]int{}
		var mu sync.Mutex
		most := testkit.MostHeap(func() {
			synctest.Test(t, func(t *testing.T) {
				end := make(chan struct{})
				var all sync.WaitGroup
				for range 100 {
					all.Go(func() {
						r := httptest.NewRequest(http.MethodPost, "/", slowBody{bytes.NewReader(large), end, &read})
						c.sign(r.Header)
						w := httptest.NewRecorder()
						var in struct{}
						Receive(w, r, testKeys, &in)
						mu.Lock()
						defer mu.Unlock()
						statuses[w.Code]++
					})
				}
				synctest.Wait()
				close(end)
				all.Wait()
			})
		})
		expect.That(t, statuses[c.status] > 0 && statuses[c.status]+statuses[c.last] >= 100, "%s: statuses %v", name, statuses)
		expect.AtMost(t, read.Load(), 3*c.mostRead, "%s: bytes that were read", name)
		expect.AtMost(t, most, 3*maxBodies, "%s: bytes of memory", name)
		expect.Equal(t, bodies.Load(), 0, "%s: bytes that are held afterwards", name)
		r := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader([]byte("{}")))
		testKeys.Sign(r.Header, "m", time.Now(), []byte("{}"))
		var in struct{}
		expect.That(t, Receive(httptest.NewRecorder(), r, testKeys, &in), "%s: the right sender's request is refused afterwards", name)
	}
}
