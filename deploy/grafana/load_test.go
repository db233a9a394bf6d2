package main

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/util/annotations"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/closer/payment"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
	"github.com/orderclose/orderclose/internal/wire"
	"github.com/orderclose/orderclose/pipeline"
	"github.com/orderclose/orderclose/pipeline/pipelinetest"
	"github.com/orderclose/orderclose/producer"
)

// topicsFile has delays that need hops, and a category that it does not list is used, too.
const topicsFile = `
delays: {default: 1m, categories: {flash-sale: 10s, virtual: 45s, physical: 3m}, rules: [{match: {category: physical}, remind: [1m]}]}
buckets: [5s, 30s, 2m]
partitions: 2
compensator: {period: 5m}
`

const (
	scrapeInterval = 15 * time.Second
	warmUp         = 2 * time.Minute // a compensator checks what waits after one minute
)

// run is what Prometheus scraped of a pipeline. First nothing is wrong, until calm; then some
// orders are not published, one does not exist, and each stage gets what it cannot read.
type run struct {
	begin, calm, end time.Time
	scrapes          []scrape
}

// scrape is the metrics of one process at one time.
type scrape struct {
	at       time.Time
	instance string
	samples  model.Vector
}

// stock is the transport to a service that takes back all stock.
type stock struct{}

func (stock) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, nil
}

// unpaid is a payment provider that knows no payment.
func unpaid(_ context.Context, ids []string) ([]payment.Answer, error) {
	return slices.Repeat([]payment.Answer{payment.Unpaid}, len(ids)), nil
}

// underLoad runs every role in a process of its own, on embedded servers in virtual time.
func underLoad(t *testing.T) (r run) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		servers := must.Get(pipelinetest.Start(pipelinetest.Options{InBubble: true}))(t)
		defer servers.Close()
		cfg := must.Get(pipeline.Parse("topics.yaml", []byte(topicsFile)))(t)
		ctx, stop := context.WithCancel(t.Context())
		apps := map[string]*pipeline.App{}
		ran := make(chan error)
		for _, role := range pipeline.AllRoles() {
			app := must.Get(servers.App(ctx, pipeline.Options{Config: cfg, Payment: payment.ProviderFunc(unpaid), Services: stock{}}))(t)
			apps[string(role)+":9464"] = app
			go func() { ran <- app.Run(ctx, role) }()
		}
		alone := must.Get(pipelinetest.Start(pipelinetest.Options{InBubble: true}))(t) // the webhook leaves no event to Kafka
		defer alone.Close()
		app := must.Get(alone.App(ctx, pipeline.Options{
			Config:  must.Get(pipeline.Parse("topics.yaml", []byte(topicsFile+"webhook: {url: https://shop.example/events}\n")))(t),
			Secrets: pipeline.Secrets{Webhook: []string{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}}, Services: stock{},
		}))(t)
		apps["webhook:9464"] = app
		go func() { ran <- app.Run(ctx, pipeline.Webhook) }()
		defer func() {
			stop()
			for range apps {
				expect.NoError(t, <-ran)
			}
		}()
		scraped := make(chan []scrape)
		scraping, endScraping := context.WithCancel(ctx)
		go func() { scraped <- scrapeAll(scraping, t, apps) }()

		r.begin = time.Now().Add(warmUp)
		shop := newShop(t, servers, cfg)
		shop.play(t, 1, func(s scenario.Step) bool { return s.Fate != scenario.Unpublished })
		r.calm = time.Now()
		shop.publishGarbage(t, cfg)
		shop.play(t, 2, func(scenario.Step) bool { return true })
		time.Sleep(10 * time.Minute) // the retries of an order take 7 minutes, the next sweep at most 5
		endScraping()
		r.scrapes, r.end = <-scraped, time.Now()
	})
	return r
}

// scrapeAll scrapes all processes until ctx ends.
func scrapeAll(ctx context.Context, t *testing.T, apps map[string]*pipeline.App) (all []scrape) {
	tick := time.NewTicker(scrapeInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return all
		case <-tick.C:
		}
		for instance, app := range apps {
			answer := httptest.NewRecorder()
			app.Handler(false).ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
			parser := expfmt.NewTextParser(model.UTF8Validation)
			families, err := parser.TextToMetricFamilies(answer.Body)
			samples, err2 := expfmt.ExtractSamples(&expfmt.DecodeOptions{}, slices.Collect(maps.Values(families))...)
			err = errors.Join(err, err2)
			expect.That(t, err == nil, "%v", err)
			all = append(all, scrape{time.Now(), instance, samples})
		}
	}
}

// shop creates orders, and publishes them directly and through the outbox.
type shop struct {
	*scenario.Shop
	servers *pipelinetest.Servers
	records *kafka.Cluster
}

func newShop(t *testing.T, servers *pipelinetest.Servers, cfg *pipeline.Config) shop {
	t.Helper()
	p := must.Get(servers.Producer(cfg))(t)
	outbox := must.Get(producer.NewOutbox(producer.OutboxOptions{Dialect: producer.SQLite, MaxDelay: cfg.MaxDelay}))(t)
	c := must.Get(servers.Connect("shop"))(t)
	s := shop{&scenario.Shop{Orders: scenario.OrdersOf(c.Store), Producer: p, Outbox: outbox}, servers, c.Kafka}
	t.Cleanup(c.Close)
	must.Do(t, s.Stock(t.Context(), 10))
	return s
}

// play plays those steps of a plan that are wanted, until the last order is due.
func (s shop) play(t *testing.T, seed uint64, wanted func(scenario.Step) bool) {
	t.Helper()
	steps := scenario.Plan(scenario.Spec{
		Seed: seed, Orders: 150, Over: 6 * time.Minute, SKUs: 10,
		Categories: []string{"flash-sale", "virtual", "physical", "unheard-of"},
	})
	steps = slices.DeleteFunc(steps, func(step scenario.Step) bool { return !wanted(step) })
	must.Do(t, s.Run(t.Context(), time.Now(), steps))
	time.Sleep(time.Until(s.LastDue()) + time.Minute)
}

// publishGarbage publishes an order that the database does not have, and records and a row that cannot be read.
func (s shop) publishGarbage(t *testing.T, cfg *pipeline.Config) {
	t.Helper()
	now := time.Now()
	absent := must.Get(wire.Record{Order: orderclose.Order{ID: "absent", CreatedAt: now, Due: now}, Release: now}.Encode())(t)
	garbage := wire.Message{Key: []byte("garbage"), Value: []byte("garbage")}
	for topic, m := range map[string]wire.Message{cfg.Topics.Close: absent, cfg.Buckets[0].Topic: garbage, cfg.Topics.Events: garbage} {
		must.Do(t, s.records.Appender.Append(t.Context(), topic, m))
	}
	must.Get(s.servers.DB().ExecContext(t.Context(), "INSERT INTO outbox_schedules (order_id, payload, created_at) VALUES ('garbage', 'garbage', 0)"))(t)
}

// database holds series in memory, by their labels. Prometheus' own database would need hundreds of packages, for every cloud.
type database map[string]*series

// series is one series. Its chunk takes 65,535 samples.
type series struct {
	storage.SeriesEntry
	chunk    *chunkenc.XORChunk
	appender chunkenc.Appender
}

// add adds a sample to a series. The times of a series must rise.
func (d database) add(l labels.Labels, at int64, value float64) (err error) {
	s := d[l.String()]
	if s == nil {
		s = &series{chunk: chunkenc.NewXORChunk()}
		s.SeriesEntry = storage.SeriesEntry{Lset: l, SampleIteratorFn: s.chunk.Iterator}
		if s.appender, err = s.chunk.Appender(); err != nil {
			return err
		}
		d[l.String()] = s
	}
	s.appender.Append(0, at, value)
	return nil
}

// find returns the series that match, sorted by their labels.
func (d database) find(matchers []*labels.Matcher) (found []storage.Series) {
	for _, s := range d {
		if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(s.Lset.Get(m.Name)) }) {
			found = append(found, s)
		}
	}
	slices.SortFunc(found, func(a, b storage.Series) int { return labels.Compare(a.Labels(), b.Labels()) })
	return found
}

// queryable returns the database as the engine reads it.
func (d database) queryable() storage.Queryable {
	return &storage.MockQueryable{MockQuerier: &storage.MockQuerier{
		SelectMockFunction: func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
			return &seriesSet{found: d.find(matchers), at: -1}
		},
	}}
}

// seriesSet implements storage.SeriesSet.
type seriesSet struct {
	found []storage.Series
	at    int
}

func (s *seriesSet) Next() bool                        { s.at++; return s.at < len(s.found) }
func (s *seriesSet) At() storage.Series                { return s.found[s.at] }
func (s *seriesSet) Err() error                        { return nil }
func (s *seriesSet) Warnings() annotations.Annotations { return nil }
