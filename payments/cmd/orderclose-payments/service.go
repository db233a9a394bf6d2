package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/closer/payment"
	"github.com/orderclose/orderclose/payments"
)

// Limits of the HTTP server. A question is answered within payments.QuestionLimit after it has arrived.
const (
	headersWithin  = 5 * time.Second
	requestWithin  = 10 * time.Second // headers and body
	answerWithin   = 20 * time.Second // from the end of the headers
	idleWithin     = 3 * time.Minute
	maxHeaderBytes = 16 << 10
	stopWithin     = 5 * time.Second // for questions that are being answered
	readyWithin    = time.Second
)

const noSuchOrder = "orderclose-payments/no-such-order" // for which the shop's query is tried

// service serves the questions of closers.
type service struct {
	provider   payment.Canceler
	references payments.References
	secrets    []string
	metrics    *metrics
	logger     *slog.Logger
	stopping   atomic.Bool
}

// handler returns the HTTP handler: questions at every path but /metrics, /-/healthy and /-/ready.
func (s *service) handler() (http.Handler, error) {
	questions, err := payment.Handler(s.secrets, counted{s.provider, s.metrics})
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("/", questions)
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.metrics.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /-/healthy", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("healthy\n")) })
	mux.HandleFunc("GET /-/ready", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), readyWithin)
		defer cancel()
		if s.stopping.Load() {
			http.Error(w, "stopping", http.StatusServiceUnavailable)
		} else if _, err := s.references(ctx, []string{noSuchOrder}); err != nil {
			http.Error(w, "the query of the shop's payments fails, the log says why", http.StatusServiceUnavailable)
			s.logger.Warn("not ready: the query of the shop's payments fails", "err", err)
		} else {
			_, _ = w.Write([]byte("ready\n"))
		}
	})
	return mux, nil
}

// serve serves on the listener, which it closes, until ctx ends and the questions at that moment are answered.
func (s *service) serve(ctx context.Context, listener net.Listener) error {
	handler, err := s.handler()
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	server := &http.Server{
		Handler: handler, MaxHeaderBytes: maxHeaderBytes,
		ReadHeaderTimeout: headersWithin, ReadTimeout: requestWithin, WriteTimeout: answerWithin, IdleTimeout: idleWithin,
		ErrorLog: slog.NewLogLogger(s.logger.Handler(), slog.LevelWarn),
	}
	s.logger.Info("serving questions about payments", "address", "http://"+listener.Addr().String())
	stopped := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		s.stopping.Store(true)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWithin)
		defer cancel()
		stopped <- server.Shutdown(ctx)
	})
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		stop()
		return err
	}
	return <-stopped
}

// metrics counts questions, answers, and calls of payment providers.
type metrics struct {
	registry  *prometheus.Registry
	answers   *prometheus.CounterVec
	questions *prometheus.HistogramVec
	called    *prometheus.HistogramVec
}

// buckets of durations, in seconds. The last ones are the limits of a call and of a question.
var buckets = []float64{.05, .1, .2, .3, .5, .75, 1, 1.5, 2, 2.5, 3}

func newMetrics(r *prometheus.Registry) *metrics {
	m := &metrics{
		registry: r,
		answers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "orderclose_payments_answers_total", Help: "Orders by the answer on their payments.",
		}, []string{"action", "answer"}),
		questions: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "orderclose_payments_question_duration_seconds", Help: "Duration of a question about several orders.", Buckets: buckets,
		}, []string{"action", "result"}),
		called: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "orderclose_payments_call_duration_seconds", Help: "Duration of a call of a payment provider that was answered, by its HTTP status.", Buckets: buckets,
		}, []string{"provider", "method", "code"}),
	}
	r.MustRegister(m.answers, m.questions, m.called, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// calls returns a transport that counts the calls of a payment provider.
func (m *metrics) calls(provider string, next http.RoundTripper) http.RoundTripper {
	return promhttp.InstrumentRoundTripperDuration(m.called.MustCurryWith(prometheus.Labels{"provider": provider}), next)
}

// counted is a payment.Canceler that counts its answers.
type counted struct {
	provider payment.Canceler
	metrics  *metrics
}

func (c counted) Ask(ctx context.Context, orderIDs []string) ([]payment.Answer, error) {
	return c.count(ctx, "ask", c.provider.Ask, orderIDs)
}

func (c counted) Cancel(ctx context.Context, orderIDs []string) ([]payment.Answer, error) {
	return c.count(ctx, "cancel", c.provider.Cancel, orderIDs)
}

func (c counted) count(ctx context.Context, action string, do payment.ProviderFunc, orderIDs []string) ([]payment.Answer, error) {
	began := time.Now()
	answers, err := do(ctx, orderIDs)
	result := "ok"
	switch {
	case ctx.Err() != nil:
		result = "gone" // the closer did not wait
	case errors.Is(err, orderclose.ErrUnavailable):
		result = "unavailable"
	case err != nil:
		result = "error"
	}
	c.metrics.questions.WithLabelValues(action, result).Observe(time.Since(began).Seconds())
	for _, answer := range answers {
		c.metrics.answers.WithLabelValues(action, string(answer)).Inc()
	}
	return answers, err
}
