package httpclose_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/closer/httpclose"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

var secrets = []string{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}

// A service that closes orders, and a Store that uses it.
func ExampleHandler() {
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	orders := map[string]string{"order-17": "unpaid", "order-18": "paid"} // your table

	handler, err := httpclose.Handler(secrets, func(ctx context.Context, path orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
		// In one transaction, with the rows locked:
		outcomes := make([]orderclose.Outcome, len(requests))
		for i, r := range requests {
			outcomes[i] = orderclose.Outcome{OrderID: r.OrderID, Due: r.Due, At: noon}
			switch status := orders[r.OrderID]; {
			case status == "":
				outcomes[i].Verdict = orderclose.NotFound
			case status == "paid":
				outcomes[i].Verdict = orderclose.AlreadyPaid
			case status == "closed":
				outcomes[i].Verdict = orderclose.AlreadyClosed
			case r.Due.After(noon): // compare with the due time in your own row
				outcomes[i].Verdict = orderclose.NotDue
			default:
				orders[r.OrderID] = "closed" // and return the stock
				outcomes[i].Verdict = orderclose.Closed
			}
		}
		return outcomes, nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	service := httptest.NewServer(handler)
	defer service.Close()

	// What closer and compensator do with closer.http.url.
	store, err := httpclose.New(httpclose.Options{URL: service.URL, Secrets: secrets})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	for range 2 {
		outcomes, err := store.CloseOrders(context.Background(), orderclose.PathPipeline, []orderclose.CloseRequest{
			{OrderID: "order-17", Due: noon.Add(-time.Second)},
			{OrderID: "order-18", Due: noon.Add(-time.Second)},
			{OrderID: "order-19", Due: noon.Add(-time.Second)},
		})
		if err != nil {
			fmt.Println(err)
			return
		}
		for _, o := range outcomes {
			fmt.Println(o.OrderID, o.Verdict)
		}
	}
	// Output:
	// order-17 closed
	// order-18 already_paid
	// order-19 not_found
	// order-17 already_closed
	// order-18 already_paid
	// order-19 not_found
}

func TestHandler_TransfersAllFieldsBothWays(t *testing.T) {
	now := time.Now().UTC().Truncate(time.Millisecond)
	given := []orderclose.CloseRequest{
		{OrderID: "a \"é\"", Attempt: 2, CreatedAt: now.Add(-time.Hour), Due: now},
		{OrderID: "bad"}, {OrderID: "held", Due: now}, {OrderID: "later", Due: now},
	}
	var got []orderclose.CloseRequest
	handler, err := httpclose.Handler(secrets, func(_ context.Context, path orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
		expect.Equal(t, path, orderclose.PathTouch, "path")
		if got == nil {
			got = requests
		}
		if len(requests) > 1 {
			return nil, errors.New("one of them is bad")
		}
		r := requests[0]
		switch r.OrderID {
		case "bad":
			return nil, errors.New("no stock row")
		case "held":
			return nil, orderclose.ErrContended
		case "later":
			return []orderclose.Outcome{{OrderID: r.OrderID, Verdict: orderclose.NotDue, Due: now.Add(time.Hour), At: now}}, nil
		}
		return []orderclose.Outcome{{OrderID: r.OrderID, Verdict: orderclose.Closed, Due: now, At: now.Add(time.Second)}}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(handler)
	defer server.Close()
	s, err := httpclose.New(httpclose.Options{URL: server.URL, Secrets: []string{"whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oDc2FsdHNhbHQ=", secrets[0]}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	outcomes, err := s.CloseOrders(t.Context(), orderclose.PathTouch, given)
	if err != nil {
		t.Fatal(err)
	}
	expect.Same(t, got, given, "requests")
	var said []string
	for _, o := range outcomes {
		said = append(said, fmt.Sprintf("%s %s %v %v", o.OrderID, o.Verdict, o.Remaining().Round(time.Second), o.Err))
	}
	want := []string{
		"a \"é\" closed -1s <nil>",
		"bad failed " + fmt.Sprint(outcomes[1].Remaining().Round(time.Second)) + " the service says: no stock row",
		"held contended " + fmt.Sprint(outcomes[2].Remaining().Round(time.Second)) + " the service says: another transaction holds or has changed a row",
		"later not_due 1h0m0s <nil>",
	}
	expect.Same(t, said, want, "outcomes")
}

func TestHandler_ReportsThatNothingCanBeClosed(t *testing.T) {
	handler := must.Get(httpclose.Handler(secrets, func(context.Context, orderclose.Path, []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
		return nil, fmt.Errorf("the database is unavailable: %w", orderclose.ErrUnavailable)
	}))(t)
	server := httptest.NewServer(handler)
	defer server.Close()
	for _, secret := range []string{secrets[0], "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oDc2FsdHNhbHQ="} {
		s := must.Get(httpclose.New(httpclose.Options{URL: server.URL, Secrets: []string{secret}}))(t)
		defer s.Close()
		_, err := s.CloseOrders(t.Context(), orderclose.PathSweep, []orderclose.CloseRequest{{OrderID: "a"}})
		expect.That(t, errors.Is(err, orderclose.ErrUnavailable), "%v", err)
	}
}

// The other orders of the request are closed.
func TestHandler_APanicIsTheFaultOfItsOrder(t *testing.T) {
	handler, err := httpclose.Handler(secrets, func(_ context.Context, _ orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
		outcomes := make([]orderclose.Outcome, len(requests))
		for i, r := range requests {
			if r.OrderID == "poison" {
				panic("no lines")
			}
			outcomes[i] = orderclose.Outcome{OrderID: r.OrderID, Verdict: orderclose.Closed, Due: r.Due, At: time.Now()}
		}
		return outcomes, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	service := httptest.NewServer(handler)
	defer service.Close()
	store, err := httpclose.New(httpclose.Options{URL: service.URL, Secrets: secrets})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	due := time.Now().Add(-time.Minute)
	got, err := store.CloseOrders(t.Context(), orderclose.PathPipeline, []orderclose.CloseRequest{{OrderID: "a", Due: due}, {OrderID: "poison", Due: due},
		{OrderID: "b", Due: due}})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []orderclose.Verdict{orderclose.Closed, orderclose.Failed, orderclose.Closed} {
		expect.Equal(t, got[i].Verdict, want, "the verdict of %+v", got[i])
	}
}
