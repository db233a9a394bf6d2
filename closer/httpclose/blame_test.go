package httpclose

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/bisect"
	"github.com/orderclose/orderclose/internal/httpcall"
)

func TestStore_NoVerdictOnAnyOrderIsTheServicesFault(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"500":     func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) },
		"html":    func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<html>maintenance</html>") },
		"nothing": func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "{}") },
		"null":    func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "null") },
		"204":     func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) },
		"strays": func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, `{"verdicts":[{"order_id":"x","verdict":"closed"}]}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Options{}, func(t *testing.T, s *Store, serve func(http.HandlerFunc)) {
				calls := 0
				serve(func(w http.ResponseWriter, r *http.Request) { calls++; handler(w, r) })
				culprits := &bisect.Culprits{Proof: bisect.ProofPipeline}
				for again, n := range []int{1, 2, 200, 200} {
					calls = 0
					_, err := culprits.Close(t.Context(), s, orderclose.PathPipeline, requestsOf(n))
					if !errors.Is(err, orderclose.ErrUnavailable) || calls > 12 || again == 3 && calls > 1 {
						t.Errorf("%d orders: %v after %d calls", n, err, calls)
					}
				}
			})
		})
	}
}

func requestsOf(n int) []orderclose.CloseRequest {
	requests := make([]orderclose.CloseRequest, n)
	for i := range requests {
		requests[i] = orderclose.CloseRequest{OrderID: fmt.Sprint("o-", i), Due: time.Now()}
	}
	return requests
}

// An order that breaks the service alone is blamed once another order has got its
// verdict meanwhile, and not before.
func TestStore_AnOrderThatBreaksTheServiceAloneIsFoundByVerdictsOnOthers(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, s *Store, serve func(http.HandlerFunc)) {
		serve(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			if strings.Contains(string(body), "poison") {
				w.WriteHeader(500)
				return
			}
			io.WriteString(w, `{"verdicts":[{"order_id":"good","verdict":"already_paid"}]}`)
		})
		culprits := &bisect.Culprits{Proof: bisect.ProofPipeline}
		poison := []orderclose.CloseRequest{{OrderID: "poison"}}
		for range 20 {
			if _, err := culprits.Close(t.Context(), s, orderclose.PathPipeline, poison); !errors.Is(err, orderclose.ErrUnavailable) {
				t.Fatalf("%v, although no other order got a verdict", err)
			}
		}
		if _, err := culprits.Close(t.Context(), s, orderclose.PathPipeline, []orderclose.CloseRequest{{OrderID: "good"}}); err != nil {
			t.Fatal(err)
		}
		out, err := culprits.Close(t.Context(), s, orderclose.PathPipeline, poison)
		if err != nil || out[0].Verdict != orderclose.Failed {
			t.Fatalf("%v, %v; want Failed", out, err)
		}
		if _, err := culprits.Close(t.Context(), s, orderclose.PathPipeline, poison); !errors.Is(err, orderclose.ErrUnavailable) {
			t.Fatalf("%v: its next failure is another", err)
		}
	})
}

// The error of a service that hangs names its two causes once, and so does that of the open breaker.
func TestStore_ErrorsNameEachCauseOnce(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, s *Store, serve func(http.HandlerFunc)) {
		serve(func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // or the server does not see that the client has gone
			<-r.Context().Done()
		})
		culprits := &bisect.Culprits{Proof: bisect.ProofPipeline}
		for range 6 {
			_, err := culprits.Close(t.Context(), s, orderclose.PathPipeline, requestsOf(3))
			if err == nil {
				t.Fatal("no error")
			}
			for _, cause := range []error{orderclose.ErrUnavailable, bisect.ErrNoVerdicts, httpcall.ErrTimeout} {
				if n := strings.Count(err.Error(), cause.Error()); n != 1 {
					t.Errorf("%q is %d times in %v", cause, n, err)
				}
			}
		}
	})
}
