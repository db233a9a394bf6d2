package pipeline_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/closer/httpclose"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/kafka/reads"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
	"github.com/orderclose/orderclose/pipeline"
	"github.com/orderclose/orderclose/pipeline/pipelinetest"
)

// inProcess sends requests to a handler of this process.
type inProcess struct{ http.Handler }

func (h inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, r)
	return answer.Result(), nil
}

// documented returns a block of a page in docs.
func documented(t *testing.T, page, name string) string {
	t.Helper()
	data, err := os.ReadFile("../docs/" + page)
	_, rest, found := strings.Cut(string(data), "```"+name+"\n")
	block, _, _ := strings.Cut(rest, "\n```")
	must.That(t, err == nil && found, "%s has no block %q: %v", page, name, err)
	return block
}

// A service that closes orders itself writes rows of outbox_events in its transaction: the short payload is published as a whole CloudEvent, any
// other payload unchanged. The close itself writes no event.
func TestApp_PublishesTheEventsThatAServiceWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers := must.Get(pipelinetest.Start(pipelinetest.Options{InBubble: true}))(t)
		defer servers.Close()
		cfg := must.Get(pipeline.Parse("shop.yaml", []byte("accept: [without_tls]\ndelays: {default: 1s}\nbuckets: [1s]\npartitions: 1\n"+
			"closer: {http: {url: \"http://shop.test/close\"}}\n")))(t)
		payloads := map[string]string{"ORD-20260301-000017": documented(t, "http.md", "json payload"),
			"ORD-20260301-000018": documented(t, "http.md", "json cloudevent")}
		secrets := []string{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}
		service := must.Get(httpclose.Handler(secrets, func(ctx context.Context, _ orderclose.Path,
			requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
			outcomes := make([]orderclose.Outcome, len(requests))
			for i, q := range requests {
				outcomes[i] = orderclose.Outcome{OrderID: q.OrderID, Verdict: orderclose.Closed}
				if payload := payloads[q.OrderID]; payload != "" { // not of the third order
					if _, err := servers.DB().ExecContext(ctx, "INSERT INTO outbox_events (order_id, payload, created_at) VALUES (?, ?, ?)", q.OrderID, payload,
						time.Now().UnixMilli()); err != nil {
						return nil, err
					}
				}
			}
			return outcomes, nil
		}))(t)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		app := must.Get(servers.App(ctx, pipeline.Options{Config: cfg, Secrets: pipeline.Secrets{HTTP: secrets}, Services: inProcess{service}}))(t)
		p := must.Get(servers.Producer(cfg))(t)
		for i, id := range []string{"ORD-20260301-000017", "ORD-20260301-000018", "without-a-row"} {
			must.Do(t, p.Schedule(ctx, p.Order(id, time.Now().Add(time.Duration(i)*time.Second))))
		}
		must.Do(t, app.Run(ctx, pipeline.Relay, pipeline.Closer, pipeline.Outbox))
		want := []string{documented(t, "wire.md", "json event"), documented(t, "http.md", "json cloudevent")}
		expect.Same(t, published(t, servers, cfg), want, "published events, against the document")
	})
}

// published returns the values of the topic of events.
func published(t *testing.T, servers *pipelinetest.Servers, cfg *pipeline.Config) (values []string) {
	t.Helper()
	c := must.Get(servers.Connect("reader"))(t)
	defer c.Close()
	log := c.Kafka
	end := log.Offsets(t.Context(), []kafka.OffsetQuery{{Topic: cfg.Topics.Events, At: []kafka.Moment{kafka.LogEnd}}})[0]
	must.That(t, end.Err == nil, "%v", end.Err)
	must.Get(reads.Scan(t.Context(), log, cfg.Topics.Events, reads.Span{End: end.Offsets[0]}, func(f wire.Fetched) error {
		for _, r := range f.Records {
			m, err := r.Message()
			header, _ := m.Header(orderclose.HeaderContentType)
			expect.That(t, err == nil && header == orderclose.EventContentType, "content-type %q, %v", header, err)
			values = append(values, string(m.Value))
		}
		return nil
	}))(t)
	return values
}

// A checkout in any language writes an order by the statements of docs/wire.md: the order closes on time, and its stock comes back.
func TestApp_ClosesAnOrderThatTheDocumentedStatementsWrote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers := must.Get(pipelinetest.Start(pipelinetest.Options{InBubble: true}))(t)
		defer servers.Close()
		cfg := must.Get(pipeline.Parse("shop.yaml", []byte("buckets: [1s]\npartitions: 1\n")))(t)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		app := must.Get(servers.App(ctx, pipeline.Options{Config: cfg}))(t)
		created, due := time.Now(), time.Now().Add(4*time.Second)
		payload := `{"order_id":"17","created_at":"` + created.UTC().Format(time.RFC3339Nano) + `","due_at":"` + due.UTC().Format(time.RFC3339Nano) + `"}`
		args := [][]any{{"17", "", created.UnixMilli(), due.UnixMilli()}, {"17", 1, "ink", 2}, {2, 2, "ink", 2}, {"17", payload}}
		must.Get(servers.DB().ExecContext(ctx, "INSERT INTO stock (sku_id, available, reserved) VALUES ('ink', 9, 0)"))(t)
		statements := strings.Split(strings.TrimSuffix(documented(t, "wire.md", "sql order"), ";"), ";\n")
		for i, statement := range statements {
			statement = strings.Replace(statement, "UTC_TIMESTAMP(3)", "0", 1) // SQLite has no such function
			if result, err := servers.DB().ExecContext(ctx, statement, args[i]...); err != nil {
				t.Fatal(err)
			} else if n, err := result.RowsAffected(); n != 1 || err != nil {
				t.Fatalf("%s changes %d rows, %v", statement, n, err)
			}
		}
		must.Do(t, app.Run(ctx, pipeline.Relay, pipeline.Closer, pipeline.Outbox))
		var status, closedAt, available, reserved int64
		err := servers.DB().QueryRowContext(t.Context(), "SELECT status, closed_at, available, reserved FROM orders JOIN order_items ON order_id = id JOIN stock "+
			"USING (sku_id)").Scan(&status, &closedAt, &available, &reserved)
		if late := closedAt - due.UnixMilli(); err != nil || status != 2 || available != 9 || reserved != 0 || late < 0 || late > 1000 {
			t.Errorf("status %d, closed %d ms late, available %d, reserved %d, %v", status, late, available, reserved, err)
		}
	})
}
