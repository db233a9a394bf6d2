package pipeline

import (
	"context"
	"errors"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/closer/httpclose"
	"github.com/orderclose/orderclose/internal/clients"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/sqlite"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// pausedShop has a service that closes every order, obeys no pause and counts its orders, and a database.
type pausedShop struct {
	db    *store.Store
	asked int
	app   *App
}

func newPausedShop(t *testing.T) *pausedShop {
	t.Helper()
	s := &pausedShop{db: must.Get(sqlite.Open(sqlite.Memory, nil))(t)}
	t.Cleanup(func() { s.db.Close() })
	must.Do(t, s.db.Migrate(t.Context()))
	secrets := []string{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}
	handler := must.Get(httpclose.Handler(secrets, func(_ context.Context, _ orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
		outcomes := make([]orderclose.Outcome, len(requests))
		for i, r := range requests {
			outcomes[i] = orderclose.Outcome{OrderID: r.OrderID, Verdict: orderclose.Closed, Due: r.Due, At: time.Now()}
		}
		s.asked += len(requests)
		return outcomes, nil
	}))(t)
	service := httptest.NewServer(handler)
	t.Cleanup(service.Close)
	cfg := config.Default()
	cfg.Closer.Kind, cfg.Closer.HTTP.URL = config.KindHTTP, service.URL
	s.app = must.Get(New(Options{Config: cfg, Connections: clients.Clients{Store: s.db}, Secrets: Secrets{HTTP: secrets}}))(t)
	t.Cleanup(func() { s.app.Close() })
	return s
}

// close closes an order of each category.
func (s *pausedShop) close(t *testing.T, path orderclose.Path) (string, error) {
	t.Helper()
	method := must.Get(s.app.closeMethodOnce())(t)
	due := time.Now().Add(-time.Minute)
	outcomes, err := method.store.CloseOrders(t.Context(), path, []orderclose.CloseRequest{
		{OrderID: "a", Category: "tickets", Due: due}, {OrderID: "b", Due: due}, {OrderID: "c", Category: "tickets", Due: due},
		{OrderID: "d", Category: "book", Due: due}})
	verdicts := ""
	for _, o := range outcomes {
		verdicts += o.OrderID + " " + string(o.Verdict) + "; "
	}
	return verdicts, err
}

// A service closes the orders. Its closers and compensators obey the rows of the database.
func TestPauses_OfTheDatabaseHoldForAService(t *testing.T) {
	s := newPausedShop(t)
	for _, path := range []orderclose.Path{orderclose.PathPipeline, orderclose.PathSweep} {
		must.Get(s.db.Pause(t.Context(), "tickets", time.Hour, "INC-1", false))(t)
		verdicts := must.Get(s.close(t, path))(t)
		expect.Equal(t, verdicts, "a paused; b closed; c paused; d closed; ", "verdicts during a pause of a category")
		must.Get(s.db.Pause(t.Context(), "", time.Hour, "INC-2", false))(t)
		asked := s.asked
		_, err := s.close(t, path)
		expect.That(t, errors.Is(err, orderclose.ErrPaused) && errors.Is(err, orderclose.ErrNoOrderAtFault) && s.asked == asked,
			"during a pause of all orders: %v, and the service was asked for %d orders", err, s.asked-asked)
		must.Get(s.db.DB().ExecContext(t.Context(), "DELETE FROM pauses"))(t)
		verdicts = must.Get(s.close(t, path))(t)
		expect.Equal(t, verdicts, "a closed; b closed; c closed; d closed; ", "verdicts after the pauses")
	}
	method := must.Get(s.app.closeMethodOnce())(t)
	expect.That(t, len(method.needs) == 1 && method.needs[0].name == "database", "the closer waits for %v", method.needs)
	own := &App{o: Options{Store: ownStore{}}, conns: s.app.conns}
	expect.That(t, !s.app.searched() && !own.searched(), "a closer settles the records of paused orders that no compensator may find")
}

// A database that does not answer may have a pause.
func TestPauses_WithoutTheDatabaseAServiceClosesNothing(t *testing.T) {
	s := newPausedShop(t)
	must.That(t, s.db.Close() == nil, "the database is not closed")
	_, err := s.close(t, orderclose.PathPipeline)
	down := errors.Is(err, orderclose.ErrUnavailable) && errors.Is(err, orderclose.ErrNoOrderAtFault) && !errors.Is(err, orderclose.ErrPaused)
	expect.That(t, down && s.asked == 0, "%v, and the closer asked the service for %d orders", err, s.asked)
}

// A closer of a service without a database has no pauses.
func TestPauses_WithoutADatabaseThereAreNone(t *testing.T) {
	s := newPausedShop(t)
	s.app.conns.Store = nil
	verdicts := must.Get(s.close(t, orderclose.PathPipeline))(t)
	expect.Equal(t, verdicts, "a closed; b closed; c closed; d closed; ", "verdicts")
}

// While a pause counts as on, alerts about lateness are silent.
func TestPauses_TheMetricForgetsThoseThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, r := must.Get(sqlite.Open(sqlite.Memory, nil))(t), testkit.NewMetrics()
		must.Do(t, db.Migrate(t.Context()))
		must.Get(db.Pause(t.Context(), "", time.Hour, "INC-1", false))(t)
		a := must.Get(New(Options{Config: config.Default(), Connections: clients.Clients{Store: db}, Registerer: r}))(t)
		defer a.Close()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go a.watchPauses(ctx)
		time.Sleep(time.Second)
		for i, want := range []float64{0, 1, 1, 0} { // the second read and the third one fail
			expect.Equal(t, r.Value("paused", "orders", "all"), want, "paused after %d reads", i)
			if want == 1 {
				db.Close()
			}
			time.Sleep(pauseMetricInterval)
		}
	})
}
