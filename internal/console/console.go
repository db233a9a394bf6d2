// Package console serves the web console: what waits, what is due when, and why an order was missed.
//
//	c, err := console.New(console.Options{Pipeline: pipeline, …})
//	http.Serve(listener, c.Handler())
//
// Pages are HTML that the server renders, and work without scripts. With scripts, the open page Now asks
// each 5 s for what has changed. The pages show what internal/ops returns, as the commands do; this package only renders it.
//
// A page never waits long for a server. If a server does not answer, the page shows the last answer and
// its age, the error, and when the error began.
//
//	console.go    the routes
//	page.go       rendering a page, in the language of the browser
//	texts.go      the catalogue of all texts, texts.yaml
//	history.go    rates, and what waited in the last hours
//	times.go      moments in the zone of the reader, ages, and servers that are not configured
//	now.go, order.go, deadletters.go, delays.go    the pages
//	runbook.go    the page of the runbook, links to it, and its commands
//	actions.go    actions that a person confirms
//	templates, static    HTML, style and script
package console

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/console/access"
	"github.com/orderclose/orderclose/internal/deadletters"
	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/health"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/runbook"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/webhook"
)

// Options of a Console. Config and Settings are required.
type Options struct {
	// Pipeline has what the pages ask: Kafka, Store and Redis, each nil if none is named, OwnStore and Broken.
	ops.Pipeline
	Config func() *config.Config // the configuration in effect

	Settings environ.Console // who may open the console; Settings.Listen must be set
	Version  string          // of the program, shown in the footer
	Logger   *slog.Logger
}

// Console serves the console. Make it with New.
type Console struct {
	o      Options
	ctx    context.Context // of fetches; ends with Close
	cancel context.CancelFunc
	gate   *access.Gate

	asks  *ops.Questions
	late  *ops.Question[[]store.LatePayment] // that nobody has resolved
	trend history

	histories ops.Histories

	acting    sync.RWMutex          // read-locked by each action
	letters   *deadletters.Follower // nil: no Kafka
	following sync.WaitGroup        // of letters and of the history
}

//go:embed templates static
var files embed.FS

// New returns a Console. It follows the dead letters, reads a status each sampleEvery, and asks nothing else until a page needs it. Call
// Close in the end.
func New(o Options) (*Console, error) {
	if o.Config == nil {
		return nil, errors.New("console: Options.Config is missing")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	c := &Console{o: o, histories: ops.NewHistories()}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	var err error
	if c.gate, err = access.New(access.Options{
		Settings: o.Settings, Refuse: c.serveRefusal, Logger: o.Logger,
	}); err != nil {
		c.cancel()
		return nil, fmt.Errorf("console: %w", err)
	}
	c.asks = ops.NewQuestions(c.ctx, waitFirst, c.pipeline, webhook.Check)
	c.late = ops.NewQuestion(c.ctx, 5*time.Second, 30*time.Second, waitFirst,
		func(ctx context.Context) ([]store.LatePayment, error) { return c.pipeline().LatePayments(ctx, false) })
	if o.Kafka != nil {
		c.letters = deadletters.NewFollower(c.pipeline().DeadLetters(), o.Logger)
		c.following.Go(func() { c.letters.Run(c.ctx, lettersInterval, nil) })
		c.following.Go(func() {
			for retry.Sleep(c.ctx, sampleEvery) {
				c.remember(ops.Get(c.ctx, c.asks, health.KafkaCheck))
			}
		})
	}
	return c, nil
}

// Close ends requests to the servers, and actions that are being carried out; what these
// have done stays done. It returns when the actions have ended.
func (c *Console) Close() {
	c.cancel()
	c.acting.Lock()
	defer c.acting.Unlock()
	c.following.Wait()
}

// waitFirst is how long a page waits for the first answer of a server.
const waitFirst = 5 * time.Second

// pipeline returns what the pages ask.
func (c *Console) pipeline() ops.Pipeline {
	p := c.o.Pipeline
	p.Config = c.o.Config()
	if c.letters != nil {
		p.OpenLetters = func() (deadletters.Counts, error) {
			s := c.letters.State()
			if s.Problem != "" {
				return nil, errors.New(s.Problem)
			}
			return s.Open, nil
		}
	}
	return p
}

// Handler serves pages and live updates below the base path.
func (c *Console) Handler() http.Handler {
	mux := http.NewServeMux()
	for pattern, serve := range map[string]http.HandlerFunc{
		"GET /{$}":                               c.serveNow,
		"GET /order":                             c.show("order", func(*http.Request) any { return orderData{} }),
		"POST /order":                            c.serveOrder,
		"GET /delays":                            c.serveDelays,
		"GET /dead-letters":                      c.serveLetters,
		"POST /dead-letters":                     c.serveLetters,
		"GET /dead-letters/{partition}/{offset}": c.serveLetter,
		"GET /payments":                          c.show("payments", func(r *http.Request) any { return c.late.Get(r.Context()) }),
		"GET /runbook":                           c.show("runbook", func(*http.Request) any { return runbook.Sections() }),
		"POST /language":                         c.keepChoice(languageCookie, "lang", func(value string) string { return languageOf(value, "") }),
		"POST /zone":                             c.keepChoice(zoneCookie, "zone", func(value string) string { return zoneNamed(value).String() }),
		"GET /live":                              c.serveLive,
		"GET /static/{name}":                     http.FileServerFS(files).ServeHTTP,
		"/":                                      c.serveNotFound,
	} {
		mux.HandleFunc(pattern, c.formed(serve))
	}
	mux.Handle("POST /actions", c.gate.Action(c.formed(c.serveAction)))
	if c.o.Settings.BasePath == "" {
		return c.gate.Wrap(mux)
	}
	outer := http.NewServeMux()
	outer.Handle(c.o.Settings.BasePath+"/", http.StripPrefix(c.o.Settings.BasePath, mux))
	return c.gate.Wrap(outer)
}

// serveRefusal answers a request that may not be served.
func (c *Console) serveRefusal(w http.ResponseWriter, r *http.Request, refusal access.Refusal) {
	c.renderProblem(w, r, refusal.Status, "refusal."+string(refusal.Reason), "")
}
