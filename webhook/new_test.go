package webhook

import (
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/health"
	"github.com/orderclose/orderclose/internal/signature"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/sqlite"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

const example = "webhook: {url: https://shop.example/events}"

func parse(t *testing.T, more string) (*config.Config, error) {
	t.Helper()
	return config.Parse("shop.yaml", []byte("buckets: [1m]\n"+more))
}

func TestSettings_AreChecked(t *testing.T) {
	c := must.Get(parse(t, example))(t)
	expect.Equal(t, c.Webhook, config.Webhook{URL: "https://shop.example/events"}, "settings")
	for _, text := range []string{
		"{}", "{timeout: 5s}", "{url: ftp://x}", "{url: 'https://u:p@x/'}", "{url: https://x, timeout: 10s}",
	} {
		expect.Says(t, expect.Err(parse(t, "webhook: "+text)), "webhook", "%s", text)
	}
}

func TestNew_NamesWhatIsWrong(t *testing.T) {
	for _, c := range []struct{ topics, secret, want string }{
		{"", secret, "topics.yaml does not say where the events go"},
		{"webhook: {url: http://shop.example/e}", secret, "add without_tls to accept"},
		{"webhook: {url: https://shop.example/e}", "", "there is no secret"},
		{"webhook: {url: https://shop.example/e}", "short", "secret 1 is not whsec_"},
		{"webhook: {url: http://shop.example/e}\naccept: [without_tls]", secret, ""},
		{"webhook: {url: http://127.0.0.1:8080/e}", newSecret + "," + secret, ""},
	} {
		_, err := New(Options{
			Config: must.Get(parse(t, c.topics))(t), Secrets: signature.Split(c.secret),
			Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
		})
		expect.That(t, (err == nil) == (c.want == ""), "%+v: %v", c, err)
		if err != nil {
			expect.Says(t, err, c.want, "%+v", c)
		}
	}
}

// asked is a pipeline that is asked.
type asked struct {
	config *config.Config
	db     *store.Store
}

func (a asked) Settings() *config.Config { return a.config }
func (a asked) Database() *store.Store   { return a.db }

func TestCheck_SaysWhatWaitsForWhat(t *testing.T) {
	now := time.Now()
	judged := func(s state, err error) health.Verdict {
		return health.Judge(health.Facts{Now: now, Checks: []health.Check{Check}, Answers: map[string]health.Answer[any]{
			string(checkName): {Value: s, At: now, Err: err},
		}})
	}
	expect.Equal(t, len(judged(state{Waiting: 3, Oldest: waitsLong - 1}, nil).Problems), 0, "findings")
	v := judged(state{
		Waiting: 6, Refused: 2, Behind: 3, Oldest: 10 * time.Minute, First: []string{"order a: it answered 422"}, OtherReader: time.Minute,
	}, nil)
	must.That(t, len(v.Problems) == 2 && v.State == health.LookToday, "%+v", v)
	for i, want := range []string{
		"6 events wait, the oldest for 10m: 1 for the first attempt, 2 for the next attempt, 3 for an earlier event of the same order; " +
			"order a: it answered 422",
		"it took rows of outbox_events 1m ago",
	} {
		expect.Equal(t, v.Problems[i].Detail, want, "finding %d", i)
		expect.Equal(t, v.Problems[i].Runbook, runbookSection, "its section")
	}
	expect.That(t, v.Problems[0].Since.Equal(now.Add(-10*time.Minute)), "since %v", v.Problems[0].Since)
	expect.Equal(t, len(judged(state{}, orderclose.ErrUnavailable).Problems), 0, "findings while the database does not answer")
	expect.Equal(t, judged(state{OtherReader: time.Hour}, nil).State, health.Well, "an hour after another reader")
}

// Without the section in topics.yaml the tables need not exist.
func TestCheck_AsksOnlyWithASection(t *testing.T) {
	db := must.Get(sqlite.Open(sqlite.Memory, nil))(t)
	defer db.Close()
	without, with := must.Get(parse(t, ""))(t), must.Get(parse(t, example))(t)
	expect.NoError(t, expect.Err(ask(asked{config: without, db: db}, t.Context())))
	expect.Is(t, expect.Err(ask(asked{config: with}, t.Context())), health.ErrNoDatabase, "without a database")
	expect.That(t, expect.Err(ask(asked{config: with, db: db}, t.Context())) != nil, "without tables")
}
