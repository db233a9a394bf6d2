package console

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/console/access"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/ops/deadletters"
	"github.com/orderclose/orderclose/internal/wire"
)

const apiPrefix = "/api/v1/"

//go:embed openapi.json
var openAPI []byte

// answer is the body of an answer about something that a server told: the value, when it was read,
// and why there is no newer one.
type answer[T any] struct {
	At    time.Time `json:"at,omitzero"`     // when the value was read; absent: never
	Error string    `json:"error,omitempty"` // why there is no newer value
	Since time.Time `json:"since,omitzero"`  // since when
	Value *T        `json:"value,omitempty"`
}

func answerOf[T any](k ops.Answer[T]) answer[T] {
	a := answer[T]{At: k.At, Since: k.Since}
	if k.Known() {
		a.Value = &k.Value
	}
	if k.Err != nil {
		a.Error = k.Err.Error()
	}
	return a
}

// endpoint is one endpoint of the API. openapi.json is made from all of them by a test.
type endpoint struct {
	pattern string // as http.ServeMux has it
	summary string
	body    any  // of the request; nil: it has none
	answer  any  // of the answer with the first of statuses
	action  bool // it plans or makes a change
	// statuses are those of the answers: the first with answer, the others with an error.
	statuses []int
	serve    serveJSON
}

// serveJSON returns the status and the body of the answer to a request; with an error, the body is the error.
type serveJSON func(r *http.Request) (status int, body any, err error)

// handler returns the handler of an endpoint. The answer to a plan that begins says where the plan is.
func (c *Console) handler(e endpoint) http.Handler {
	serve := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status, body, err := e.serve(r)
		if err != nil {
			body = errorAnswer{err.Error()}
		}
		if begun, ok := body.(plan); ok && status == http.StatusAccepted {
			w.Header().Set("Location", c.o.Settings.BasePath+apiPrefix+"plans/"+begun.ID)
		}
		beginJSON(w, status)
		_ = c.o.Reads.WriteJSON(w, body, c.o.TopicsFile) // the client is gone
	})
	if e.action {
		return c.gate.Action(serve)
	}
	return serve
}

// known returns the endpoint for the answer to a question. Its status is 503 as long as there is no answer.
func known[T any](pattern, summary string, get func(context.Context) ops.Answer[T]) endpoint {
	return endpoint{pattern: pattern, summary: summary, answer: answer[T]{}, statuses: []int{200, 503}, serve: func(r *http.Request) (int, any, error) {
		k := get(r.Context())
		if !k.Known() {
			return http.StatusServiceUnavailable, answerOf(k), nil
		}
		return http.StatusOK, answerOf(k), nil
	}}
}

// answersTo returns what asks one of the questions.
func answersTo[T any](c *Console, name ops.Name[T]) func(context.Context) ops.Answer[T] {
	return func(ctx context.Context) ops.Answer[T] { return name.Get(ctx, c.asks) }
}

// asking returns a serveJSON that decodes the body of a request and passes it to answer.
func asking[Q any](answer func(r *http.Request, asked Q) (int, any, error)) serveJSON {
	return func(r *http.Request) (int, any, error) {
		var asked Q
		d := json.NewDecoder(r.Body)
		d.DisallowUnknownFields()
		err := d.Decode(&asked)
		if err == nil && d.More() {
			err = errors.New("there is more behind the JSON value")
		}
		if err != nil {
			return http.StatusBadRequest, nil, fmt.Errorf("the body is not the JSON that %sopenapi.json describes: %w", apiPrefix, err)
		}
		return answer(r, asked)
	}
}

// The bodies of requests.
type (
	orderQuestion struct {
		ID string `json:"order_id"`
	}
	delayQuestion struct {
		Category string `json:"category"`
	}
	planQuestion struct {
		Kind   string              `json:"kind"`   // redrive, discard, sweep, pause, resume, refunded or reopened
		Fields map[string][]string `json:"fields"` // those of the form of the kind
	}
)

// statusAnswer is the body of /api/v1/status.
type statusAnswer struct {
	ops.Verdict
	Text  string             `json:"text"` // the verdict in one sentence
	Kafka answer[ops.Status] `json:"kafka"`
	// Overdue are the orders that should have been closed, as the database counts them.
	Overdue answer[ops.OverdueOrders] `json:"overdue"`
	Pauses  []wire.Pause              `json:"pauses"` // that are on
}

// errorAnswer is the body of an answer with an error.
type errorAnswer struct {
	Error string `json:"error"`
}

func (c *Console) endpoints() []endpoint {
	return []endpoint{
		{pattern: "GET /api/v1/status", summary: "Whether all is well, and what waits in each topic and partition",
			answer: statusAnswer{}, statuses: []int{200}, serve: c.serveStatusJSON},
		{pattern: "POST /api/v1/order", summary: "The history of one order, as orderclose order shows it. " +
			"The answer has 404 if the order was found nowhere, and then says where it was searched",
			body: orderQuestion{}, answer: ops.History{}, statuses: []int{200, 400, 404}, serve: asking(c.serveOrderJSON)},
		{pattern: "GET /api/v1/history", summary: "What waited, and how many records came and were handled a second, " +
			"a sample each minute of the last hours, the oldest first. A value that was not measured is absent",
			answer: []sample{}, statuses: []int{200}, serve: func(r *http.Request) (int, any, error) {
				return http.StatusOK, c.lastHours(c.askPrometheus(r.Context())), nil
			}},
		known("GET /api/v1/topics", "How the topics differ from topics.yaml", answersTo(c, ops.AskTopics)),
		{pattern: "GET /api/v1/dead-letters", summary: "A page of the dead letters, newest first, and their numbers. " +
			"The query has cause, topic, stage, since, all=1 and after, as the page of the console has",
			answer: lettersAnswer{}, statuses: []int{200, 400, 503}, serve: func(r *http.Request) (int, any, error) { return c.lettersJSON(r, r.URL.Query()) }},
		{pattern: "POST /api/v1/dead-letters/search", summary: "The dead letters of one order, pending or not",
			body: orderQuestion{}, answer: lettersAnswer{}, statuses: []int{200, 503}, serve: asking(func(r *http.Request, asked orderQuestion) (int, any, error) {
				return c.lettersJSON(r, url.Values{"order": {asked.ID}, "all": {"1"}})
			})},
		{pattern: "GET /api/v1/dead-letters/{partition}/{offset}", summary: "One dead letter with its record, as orderclose dlq show shows it",
			answer: deadletters.Whole{}, statuses: []int{200, 404, 503}, serve: c.serveLetterJSON},
		known("GET /api/v1/sweeps", "The compensations of the last week, as orderclose sweeps shows them", answersTo(c, ops.AskSweeps)),
		known("GET /api/v1/payments",
			"The payments that came after their order was closed and that nobody has resolved, as orderclose payments late shows them", c.late.Get),
		{pattern: "POST /api/v1/delays", summary: "When an order of a category that is made now is due, and the way of its record",
			body: delayQuestion{}, answer: delayRoute{}, statuses: []int{200, 400}, serve: asking(func(_ *http.Request, asked delayQuestion) (int, any, error) {
				return http.StatusOK, route(c.o.Config(), asked.Category, time.Now()), nil
			})},
		{pattern: "POST /api/v1/plans", summary: "Begin to make a plan, which changes nothing. Read it until its state is planned",
			body: planQuestion{}, answer: plan{}, statuses: []int{202, 400, 403, 503}, action: true,
			serve: asking(func(r *http.Request, asked planQuestion) (int, any, error) {
				p, err := c.addPlan(r, asked.Kind, asked.Fields)
				return planJSON(p, err, http.StatusAccepted)
			})},
		{pattern: "GET /api/v1/plans", summary: "The plans of the last day that this process has made, the newest first",
			answer: []plan{}, statuses: []int{200}, serve: func(*http.Request) (int, any, error) { return http.StatusOK, c.plans.all(), nil }},
		{pattern: "GET /api/v1/plans/{id}", summary: "A plan: what it would change, its progress, or its result",
			answer: plan{}, statuses: []int{200, 404}, serve: func(r *http.Request) (int, any, error) {
				p, err := c.plans.get(r.PathValue("id"))
				return planJSON(p, err, http.StatusOK)
			}},
		{pattern: "POST /api/v1/plans/{id}/confirm", summary: "Begin to carry out a plan of one's own",
			answer: plan{}, statuses: []int{202, 403, 404, 409, 503}, action: true, serve: func(r *http.Request) (int, any, error) {
				p, err := c.plans.confirm(r.PathValue("id"), access.From(r.Context()))
				return planJSON(p, err, http.StatusAccepted)
			}},
	}
}

func (c *Console) serveStatusJSON(r *http.Request) (int, any, error) {
	d := c.now(r.Context())
	return http.StatusOK, statusAnswer{Verdict: d.Verdict, Text: text("en", "verdict."+string(d.Verdict.State)), Kafka: answerOf(d.Status),
		Overdue: answerOf(d.Overdue), Pauses: append([]wire.Pause{}, d.Pauses...)}, nil
}

func (c *Console) serveOrderJSON(r *http.Request, asked orderQuestion) (int, any, error) {
	if err := orderclose.ValidateID(asked.ID); err != nil {
		return http.StatusBadRequest, nil, fmt.Errorf("order_id: %w", err)
	}
	h := c.history(r.Context(), asked.ID)
	if !h.Known() {
		return http.StatusNotFound, h, nil // says where the order was searched
	}
	return http.StatusOK, h, nil
}

func writeError(w http.ResponseWriter, status int, what string) {
	beginJSON(w, status)
	_ = ops.Commands{}.WriteJSON(w, errorAnswer{what}, "") // the client is gone
}

// beginJSON writes the header of an answer in JSON.
func beginJSON(w http.ResponseWriter, status int) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
}
