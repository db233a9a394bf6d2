// Package notify sends the alerts of Prometheus' Alertmanager to people: to a robot of DingTalk,
// or to any provider of SMS or calls that takes an HTTP request.
//
// Create a Notifier from a notify.yaml, and serve its Handler. Alertmanager posts to
// /alert/RECEIVER.
//
//	config.go    notify.yaml: read and check
//	notify.go    the handler: which answer Alertmanager gets
//	message.go   what Alertmanager posts, and the text that is made of it
//	dingtalk.go  a signed request to a robot of DingTalk
//	provider.go  a request by templates to any other provider
//	request.go   sending a request, and how its failure counts
//
// The answer is 200 if and only if the provider accepted the message. 503 means that a retry may
// help: Alertmanager retries until the next notification of the group. Every other status means
// that a person must fix something; Alertmanager then tries again only with the next notification
// of the group. A message may be sent twice, if the provider's answer is lost.
//
// No error, log line or answer contains the URL of a receiver or its secret.
package notify

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"text/template"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/time/rate"

	"github.com/orderclose/orderclose/internal/httpcall"
	"github.com/orderclose/orderclose/internal/metrics"
)

const (
	// maxRequest limits what Alertmanager may post, in bytes. An alert has about 1 KB.
	maxRequest = 4 << 20
	// sendTimeout limits one request to a provider, with its answer.
	sendTimeout = 10 * time.Second
)

// Results of the metric notifications_total.
const (
	sent    = "sent"    // the provider accepted the message
	failed  = "failed"  // a retry may help
	refused = "refused" // a person must fix something
)

// Options configure a Notifier. Config is required.
type Options struct {
	Config *Config
	Logger *slog.Logger     // default: none
	Now    func() time.Time // default: time.Now
}

// Notifier sends alerts. Its handler is safe for concurrent use. Create it with New.
type Notifier struct {
	receivers map[string]*receiver
	registry  *prometheus.Registry
	counts    *prometheus.CounterVec
	logger    *slog.Logger
}

type receiver struct {
	request
	alert *template.Template
	limit int // of a text, in characters
	// deliver sends a message. An error that wraps errTemporary may go away by itself.
	deliver func(ctx context.Context, m *Message, target *url.URL) error
}

// send writes the text of a message, and sends it.
func (r *receiver) send(ctx context.Context, m *Message) error {
	target, secret, err := r.read()
	if err != nil {
		return err
	}
	m.Secret = secret
	if err := m.write(r.alert, r.limit); err != nil {
		return err
	}
	return r.deliver(ctx, m, target)
}

// New returns a Notifier. It returns an error if a template is invalid, or a file of a receiver
// cannot be read. The files are read again for each message, so a changed secret needs no restart.
func New(o Options) (*Notifier, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	n := &Notifier{receivers: map[string]*receiver{}, registry: prometheus.NewRegistry(), logger: o.Logger}
	f := metrics.With(n.registry)
	metrics.Register(f, collectors.NewGoCollector())
	metrics.Register(f, collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	n.counts = f.CounterVec("notifications_total",
		"Messages with alerts, by receiver and result: sent; failed, Alertmanager retries; refused, a person must fix something.", "receiver", "result")
	errs := []error{f.Err()}
	for _, name := range slices.Sorted(maps.Keys(o.Config.Receivers)) {
		r, err := newReceiver(o.Config.Receivers[name], o.Now)
		if err == nil {
			if err = r.check(); err != nil {
				err = fmt.Errorf("receiver %s: %w", name, err)
			}
		}
		errs = append(errs, err)
		n.receivers[name] = r
		for _, result := range []string{sent, failed, refused} {
			n.counts.WithLabelValues(name, result)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return n, nil
}

func newReceiver(c Receiver, now func() time.Time) (*receiver, error) {
	r, target, standard := &receiver{}, Target{}, plainAlert
	var err1, err2 error
	if d := c.DingTalk; d != nil {
		target, standard, r.deliver = d.Target, markdownAlert, (&dingTalk{d.At, rate.NewLimiter(rate.Every(robotEvery), robotBurst), now}).deliver
	} else {
		var p *provider
		p, err2 = newProvider(c.HTTP)
		target, r.deliver = c.HTTP.Target, p.deliver
	}
	r.request, r.limit = request{url: target.URL, urlFile: target.URLFile, secretFile: target.SecretFile}, target.Limit
	r.alert, err1 = parse(target.Alert, standard, Alert{})
	return r, errors.Join(err1, err2)
}

// Handler serves POST /alert/RECEIVER, and GET /metrics, /-/healthy and /-/ready. /-/ready answers
// 503 while a file with a URL or a secret cannot be read. A POST from a browser gets 403.
func (n *Notifier) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /alert/{receiver}", n.serveAlert)
	mux.Handle("GET /metrics", promhttp.HandlerFor(n.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /-/healthy", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "healthy") })
	mux.HandleFunc("GET /-/ready", n.serveReady)
	return httpcall.RefuseBrowsers(mux)
}

func (n *Notifier) serveReady(w http.ResponseWriter, _ *http.Request) {
	var waiting []string
	for _, name := range slices.Sorted(maps.Keys(n.receivers)) {
		if err := n.receivers[name].check(); err != nil {
			waiting = append(waiting, fmt.Sprintf("receiver %s: %v", name, err))
		}
	}
	if len(waiting) == 0 {
		fmt.Fprintln(w, "ready")
		return
	}
	w.WriteHeader(http.StatusServiceUnavailable)
	for _, line := range waiting {
		fmt.Fprintln(w, line)
	}
}

func (n *Notifier) serveAlert(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("receiver")
	to, ok := n.receivers[name]
	if !ok {
		n.logger.Warn("alerts for an unknown receiver", "receiver", name)
		http.Error(w, "notify.yaml has no receiver of this name", http.StatusNotFound)
		return
	}
	m, err := decode(http.MaxBytesReader(w, r.Body, maxRequest))
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		n.fail(w, name, refused, http.StatusRequestEntityTooLarge, fmt.Errorf("more than %d bytes: set max_alerts in Alertmanager's webhook_configs", maxRequest))
		return
	}
	if err != nil {
		n.fail(w, name, refused, http.StatusBadRequest, err)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), sendTimeout)
	defer cancel()
	switch err := to.send(ctx, m); {
	case errors.Is(err, errTemporary):
		n.fail(w, name, failed, http.StatusServiceUnavailable, err)
	case err != nil:
		n.fail(w, name, refused, http.StatusUnprocessableEntity, err)
	default:
		n.counts.WithLabelValues(name, sent).Inc()
		n.logger.Info("alerts sent", "receiver", name, "status", m.Status, "alerts", len(m.Alerts), "left_out", m.LeftOut)
		fmt.Fprintln(w, "sent")
	}
}

// fail counts, logs and answers a failure.
func (n *Notifier) fail(w http.ResponseWriter, name, result string, status int, err error) {
	n.counts.WithLabelValues(name, result).Inc()
	n.logger.Warn("alerts not sent", "receiver", name, "result", result, "err", err)
	http.Error(w, err.Error(), status)
}
