package console

import (
	_ "embed"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/ops/deadletters"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/wire"
)

// apiPrefix begins the path of each endpoint of the API.
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

// writeKnown answers with a value, or with 503 if there is none.
func writeKnown[T any](w http.ResponseWriter, k ops.Answer[T]) {
	status := http.StatusOK
	if !k.Known() {
		status = http.StatusServiceUnavailable
	}
	writeJSON(w, status, answerOf(k))
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
	serve    http.HandlerFunc
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
		Kind   string              `json:"kind"`   // redrive, discard, replay, sweep, pause, resume, refunded or reopened
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
		{pattern: "POST /api/v1/order", summary: "The history of one order, as orderclose order shows it. The answer has 404 if the order was found nowhere, and then says where it was searched",
			body: orderQuestion{}, answer: ops.History{}, statuses: []int{200, 400, 404}, serve: c.serveOrderJSON},
		{pattern: "GET /api/v1/forecast", summary: "How many records leave each bucket in the next minutes, hours and day",
			answer: answer[ops.Forecast]{}, statuses: []int{200, 503}, serve: func(w http.ResponseWriter, r *http.Request) { writeKnown(w, c.forecast.Get(r.Context())) }},
		{pattern: "GET /api/v1/history", summary: "What waited, and how many records came and were handled a second, a sample each minute of the last hours, the oldest first. A value that was not measured is absent",
			answer: []sample{}, statuses: []int{200}, serve: func(w http.ResponseWriter, r *http.Request) {
				writeJSON(w, http.StatusOK, c.lastHours(c.askPrometheus(r.Context())))
			}},
		{pattern: "GET /api/v1/topics", summary: "How the topics differ from topics.yaml",
			answer: answer[ops.TopicsPlan]{}, statuses: []int{200, 503}, serve: func(w http.ResponseWriter, r *http.Request) { writeKnown(w, c.asks.Topics.Get(r.Context())) }},
		{pattern: "GET /api/v1/dead-letters", summary: "A page of the dead letters, newest first, and their numbers. The query has cause, topic, stage, since, all=1 and after, as the page of the console has",
			answer: lettersAnswer{}, statuses: []int{200, 400, 503}, serve: c.serveLettersJSON},
		{pattern: "POST /api/v1/dead-letters/search", summary: "The dead letters of one order, pending or not",
			body: orderQuestion{}, answer: lettersAnswer{}, statuses: []int{200, 503}, serve: c.serveLetterSearchJSON},
		{pattern: "GET /api/v1/dead-letters/{partition}/{offset}", summary: "One dead letter with its record, as orderclose dlq show shows it",
			answer: deadletters.Whole{}, statuses: []int{200, 404, 503}, serve: c.serveLetterJSON},
		{pattern: "GET /api/v1/lateness", summary: "How late each stage was in the last hour, as orderclose lateness shows it",
			answer: answer[ops.Lateness]{}, statuses: []int{200, 503}, serve: func(w http.ResponseWriter, r *http.Request) { writeKnown(w, c.asks.Lateness.Get(r.Context())) }},
		{pattern: "GET /api/v1/sweeps", summary: "The sweeps and the losses of records of the last week, as orderclose sweeps shows them",
			answer: answer[ops.Sweeps]{}, statuses: []int{200, 503}, serve: func(w http.ResponseWriter, r *http.Request) { writeKnown(w, c.asks.Sweeps.Get(r.Context())) }},
		{pattern: "GET /api/v1/payments", summary: "The payments that came after their order was closed and that nobody has resolved, as orderclose payments late shows them",
			answer: answer[[]store.LatePayment]{}, statuses: []int{200, 503}, serve: func(w http.ResponseWriter, r *http.Request) { writeKnown(w, c.late.Get(r.Context())) }},
		{pattern: "POST /api/v1/delays", summary: "When an order of a category that is made now is due, and the way of its record",
			body: delayQuestion{}, answer: delayRoute{}, statuses: []int{200, 400}, serve: c.serveDelayJSON},
		{pattern: "POST /api/v1/plans", summary: "Begin to make a plan, which changes nothing. Read it until its state is planned",
			body: planQuestion{}, answer: plan{}, statuses: []int{202, 400, 403, 503}, action: true, serve: c.serveAddPlanJSON},
		{pattern: "GET /api/v1/plans", summary: "The plans of the last day that this process has made, the newest first",
			answer: []plan{}, statuses: []int{200}, serve: func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, c.plans.all()) }},
		{pattern: "GET /api/v1/plans/{id}", summary: "A plan: what it would change, its progress, or its result",
			answer: plan{}, statuses: []int{200, 404}, serve: c.servePlanJSON},
		{pattern: "POST /api/v1/plans/{id}/confirm", summary: "Begin to carry out a plan of one's own",
			answer: plan{}, statuses: []int{202, 403, 404, 409, 503}, action: true, serve: c.serveConfirmPlanJSON},
	}
}

func (c *Console) serveStatusJSON(w http.ResponseWriter, r *http.Request) {
	d := c.now(r.Context())
	writeJSON(w, http.StatusOK, statusAnswer{Verdict: d.Verdict, Text: text("en", "verdict."+string(d.Verdict.State)), Kafka: answerOf(d.Status), Overdue: answerOf(d.Overdue), Pauses: append([]wire.Pause{}, d.Pauses.Value...)})
}

func (c *Console) serveOrderJSON(w http.ResponseWriter, r *http.Request) {
	var asked orderQuestion
	if !readJSON(w, r, &asked) {
		return
	}
	if err := orderclose.ValidateID(asked.ID); err != nil {
		writeError(w, http.StatusBadRequest, "order_id: "+err.Error())
		return
	}
	h := c.history(r.Context(), asked.ID)
	if !h.Known() {
		writeJSON(w, http.StatusNotFound, h) // says where the order was searched
		return
	}
	writeJSON(w, http.StatusOK, h)
}

func (c *Console) serveDelayJSON(w http.ResponseWriter, r *http.Request) {
	var asked delayQuestion
	if readJSON(w, r, &asked) {
		writeJSON(w, http.StatusOK, route(c.o.Config(), asked.Category, time.Now()))
	}
}

// readJSON reads the body of a request. It answers the request itself and returns false if it cannot.
func readJSON(w http.ResponseWriter, r *http.Request, into any) bool {
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	err := d.Decode(into)
	if err == nil && d.More() {
		err = errors.New("there is more behind the JSON value")
	}
	if err != nil {
		writeError(w, http.StatusBadRequest, "the body is not the JSON that "+apiPrefix+"openapi.json describes: "+err.Error())
		return false
	}
	return true
}

func writeError(w http.ResponseWriter, status int, what string) {
	writeJSON(w, status, errorAnswer{what})
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client is gone
}
