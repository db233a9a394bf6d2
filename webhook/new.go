package webhook

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/health"
	"github.com/orderclose/orderclose/internal/httpcall"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/text"
)

// Stage is the name of this part in the log.
const Stage = "webhook"

// requestTimeout is the time for a request: the shortest that Standard Webhooks recommend.
const requestTimeout = 15 * time.Second

// Store is the database with the events, and Question is one of status, doctor and console.
type (
	Store    = store.Store
	Question = health.Check
)

// Options of a Sender. All are required but Transport.
type Options struct {
	Config     *config.Config    // its Webhook is the receiver
	Store      *Store            // has the events
	Secrets    []string          // sign the requests: whsec_ and 24 to 64 bytes in base64; while one is replaced, there are two
	Transport  http.RoundTripper // to the receiver; nil: the network
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// New returns a Sender, or an error that names what is missing or wrong in topics.yaml or the secrets. It opens no connection.
func New(o Options) (*Sender, error) {
	to := o.Config.Webhook.URL
	switch {
	case to == "":
		return nil, errors.New("topics.yaml does not say where the events go: write webhook: {url: https://shop.example/events}")
	case !config.Private(to) && !o.Config.Accepts(config.WithoutTLS):
		return nil, fmt.Errorf("webhook.url is http:// of another machine: anybody on the way can read the events, and answer in place of the "+
			"receiver; write https://, or add %s to accept", config.WithoutTLS)
	}
	client, err := httpcall.NewClient(to, o.Secrets, o.Transport)
	if err != nil {
		return nil, fmt.Errorf("%w: see webhook.url and %s", err, environ.EnvWebhookSecret)
	}
	m, err := newMetrics(o.Registerer)
	if err != nil {
		return nil, err
	}
	return &Sender{table: table{o.Store}, post: endpoint{client}.post, poll: pollInterval, logger: o.Logger, metrics: m}, nil
}

// Alone returns an error if the tables cannot be read, or another program has just taken rows of outbox_events.
func (t table) Alone(ctx context.Context) error {
	s, err := t.state(ctx)
	if err == nil && s.OtherReader > 0 && s.OtherReader < time.Minute {
		err = errors.New("another program takes rows of outbox_events, such as orderclose run outbox with another topics.yaml: end it, and wait a minute")
	}
	return err
}

const checkName health.Name[state] = "webhook"

// waitsLong is the age from which an event that waits is a finding, and otherReaderFor how long another reader is one.
const waitsLong, otherReaderFor = 5 * time.Minute, 10 * time.Minute

func (s state) otherReader() bool { return s.OtherReader > 0 && s.OtherReader < otherReaderFor }

const runbookSection = "events-do-not-reach-the-webhook"

// Kinds of findings.
const (
	eventsWait  health.ProblemKind = "webhook_waits"
	otherReader health.ProblemKind = "webhook_other_reader"
)

// Check is the question of status, doctor and console about the events that wait.
var Check = Question{
	Name: string(checkName), Every: 10 * time.Second, Limit: 10 * time.Second, Ask: checkName.By(ask), Judge: judge,
	Finds: []health.Kind{
		{Errors: func(err error) bool { return errors.Is(err, orderclose.ErrUnavailable) }}, // another check reports it
		{Name: eventsWait, Severity: health.Today, Runbook: runbookSection},
		{Name: otherReader, Severity: health.Today, Runbook: runbookSection},
	},
}

func ask(p health.Asked, ctx context.Context) (state, error) {
	switch {
	case p.Settings().Webhook.URL == "":
		return state{}, nil
	case p.Database() == nil:
		return state{}, health.ErrNoDatabase
	}
	return table{p.Database()}.state(ctx)
}

func judge(f *health.Findings) {
	answer := checkName.Of(f.Facts)
	s := answer.Value
	if s.Oldest >= waitsLong {
		detail := fmt.Sprintf("%s, the oldest for %s: %d for the first attempt, %d for the next attempt, %d for an earlier event of the same order",
			text.Counted(s.Waiting, "event waits", "events wait"), config.FormatDuration(s.Oldest.Truncate(time.Second)),
			s.Waiting-s.Refused-s.Behind, s.Refused, s.Behind)
		detail = strings.Join(append([]string{detail}, s.First...), "; ")
		f.Add(eventsWait, s.Waiting, detail).Since = answer.At.Add(-s.Oldest)
	}
	if s.otherReader() {
		f.Add(otherReader, 0, fmt.Sprintf("it took rows of outbox_events %s ago", config.FormatDuration(s.OtherReader.Truncate(time.Second))))
	}
}
