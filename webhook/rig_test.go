package webhook

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/orderclose/orderclose/internal/httpcall"
	"github.com/orderclose/orderclose/internal/signature"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/sqlite"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const secret, newSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oDc2FsdHNhbHQ="

// request is what a receiver got.
type request struct {
	at               time.Time
	id, event, stamp string
	header           http.Header
	order, body      string
}

// receiver is an endpoint on a network of its own. answer may wait; nil accepts all.
type receiver struct {
	mu     sync.Mutex
	got    []request
	open   int // requests that are open now, and the most there were
	most   int
	answer func(ctx context.Context, r request) (*http.Response, error)
}

func status(code int, header ...string) *http.Response {
	h := http.Header{}
	for i := 0; i < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	return &http.Response{StatusCode: code, Header: h, Body: io.NopCloser(strings.NewReader("said"))}
}

// RoundTrip implements http.RoundTripper.
func (v *receiver) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	var e struct{ ID, Subject string }
	_ = json.Unmarshal(body, &e)
	r := request{time.Now(), req.Header.Get("webhook-id"), e.ID, req.Header.Get("webhook-timestamp"), req.Header, e.Subject, string(body)}
	v.mu.Lock()
	v.got = append(v.got, r)
	v.open++
	v.most = max(v.most, v.open)
	answer := v.answer
	v.mu.Unlock()
	defer func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.open--
	}()
	if answer == nil {
		return status(http.StatusNoContent), nil
	}
	return answer(req.Context(), r)
}

func (v *receiver) set(answer func(ctx context.Context, r request) (*http.Response, error)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.answer = answer
}

// requests returns the requests so far, and forgets them.
func (v *receiver) take() []request {
	v.mu.Lock()
	defer v.mu.Unlock()
	got := v.got
	v.got = nil
	return got
}

func events(got []request) (ids []string) {
	for _, r := range got {
		ids = append(ids, r.event)
	}
	return ids
}

// of returns the requests for an order.
func of(order string, got []request) []request {
	return slices.DeleteFunc(slices.Clone(got), func(r request) bool { return r.order != order })
}

// verify returns an error if the request is not signed by the secret.
func (r request) verify() error {
	keys, err := signature.Parse([]string{secret})
	return cmp.Or(err, keys.Verify(r.header, []byte(r.body), r.at))
}

// rig is a database, and a receiver of what it has.
type rig struct {
	*testing.T
	table
	*receiver
	log  bytes.Buffer
	poll time.Duration
}

// newRig returns a rig on SQLite.
func newRig(t *testing.T) *rig {
	t.Helper()
	s := must.Get(sqlite.Open(sqlite.Memory, nil))(t)
	t.Cleanup(func() { s.Close() })
	return newRigOn(t, s)
}

func newRigOn(t *testing.T, s *store.Store) *rig {
	t.Helper()
	must.Do(t, s.Migrate(t.Context()))
	return &rig{T: t, table: table{s}, receiver: &receiver{}, poll: pollInterval}
}

// inBubble plays a test in virtual time.
func inBubble(t *testing.T, play func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { play(newRig(t)) })
}

// write writes events of orders, named ORDER/NUMBER.
func (r *rig) write(ids ...string) {
	r.Helper()
	for _, id := range ids {
		order, _, _ := strings.Cut(id, "/")
		r.row(order, fmt.Sprintf(`{"specversion":"1.0","id":%q,"source":"/orderclose","type":"order.closed","subject":%q,"data":{}}`, id, order))
	}
}

func (r *rig) row(order, payload string) {
	r.Helper()
	now := must.Get(r.Now(r.Context()))(r)
	var at any = now
	if r.Dialect() == store.SQLite {
		at = now.UnixMilli()
	}
	_, err := r.DB().ExecContext(r.Context(), "INSERT INTO outbox_events (order_id, payload, created_at) VALUES (?, ?, ?)", order, payload, at)
	must.Do(r, err)
}

func newEndpoint(t testing.TB, url string, through http.RoundTripper, secrets ...string) endpoint {
	t.Helper()
	return endpoint{must.Get(httpcall.NewClient(url, secrets, through))(t)}
}

// sender returns a sender to the receiver of the rig.
func (r *rig) sender() *Sender {
	r.Helper()
	to := newEndpoint(r, "https://shop.example/events", r.receiver, secret)
	return &Sender{table: r.table, post: to.post, poll: r.poll, logger: slog.New(slog.NewTextHandler(&r.log, nil)),
		metrics: must.Get(newMetrics(prometheus.NewRegistry()))(r)}
}

// start runs a sender until stop, which waits for its end.
func (r *rig) start() (stop func()) {
	r.Helper()
	stop = sync.OnceFunc(testkit.Start(r.T, r.sender().Run))
	r.Cleanup(stop)
	return stop
}

func (r *rig) now() state {
	r.Helper()
	return must.Get(r.state(r.Context()))(r)
}

func (r *rig) count(query string, args ...any) (n int) {
	r.Helper()
	must.Do(r, r.DB().QueryRowContext(r.Context(), query, args...).Scan(&n))
	return n
}
