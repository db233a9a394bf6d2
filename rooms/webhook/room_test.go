package webhook

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/backlog"
	"github.com/orderclose/orderclose/internal/cli/clitest"
	"github.com/orderclose/orderclose/internal/clients"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/health"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/store/sqlite"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/pipeline"
	"github.com/orderclose/orderclose/pipeline/pipelinetest"
	"github.com/orderclose/orderclose/producer"
	"github.com/orderclose/orderclose/room"
)

func parse(t *testing.T, more string) (*config.Config, error) {
	t.Helper()
	return config.Parse("shop.yaml", []byte("buckets: [1m]\n"+more), room.Sections([]room.Room{Room()})...)
}

func TestSettings_AreChecked(t *testing.T) {
	c := must.Get(parse(t, "webhook: {url: https://shop.example/e}"))(t)
	expect.Equal(t, settings.Of(c), Settings{"https://shop.example/e"}, "settings")
	must.Get(parse(t, settings.Sample()))(t)
	for _, text := range []string{
		"{}", "{timeout: 5s}", "{url: ftp://x}", "{url: 'https://u:p@x/'}", "{url: https://x, timeout: 10s}",
	} {
		expect.Says(t, expect.Err(parse(t, "webhook: "+text)), "webhook", "%s", text)
	}
}

func TestRoom_NamesWhatIsWrong(t *testing.T) {
	for _, c := range []struct{ topics, secret, want string }{
		{"", secret, "topics.yaml does not say where the events go"},
		{"webhook: {url: http://shop.example/e}", secret, "add without_tls to accept"},
		{"webhook: {url: https://shop.example/e}", "", "there is no secret"},
		{"webhook: {url: https://shop.example/e}", "short", "secret 1 is not whsec_"},
		{"webhook: {url: http://shop.example/e}\naccept: [without_tls]", secret, ""},
		{"webhook: {url: http://127.0.0.1:8080/e}", newSecret + "," + secret, ""},
	} {
		h := room.Host{
			Config: must.Get(parse(t, c.topics))(t), Servers: environ.Servers{Others: map[string]string{EnvSecret: c.secret}},
			Logger: slog.New(slog.DiscardHandler),
		}
		_, err := Room().Roles[0].New(h)
		expect.That(t, (err == nil) == (c.want == ""), "%+v: %v", c, err)
		if err != nil {
			expect.Says(t, err, c.want, "%+v", c)
		}
	}
}

// Beside the webhook the dispatcher goes on with the schedules, and leaves the events alone.
func TestRoom_BesideItTheDispatcherPublishesSchedulesAlone(t *testing.T) {
	for topics, left := range map[string]int{example: 1, "": 0} {
		synctest.Test(t, func(t *testing.T) {
			servers := must.Get(pipelinetest.Start(pipelinetest.Options{InBubble: true}))(t)
			defer servers.Close()
			a := must.Get(servers.App(t.Context(), pipeline.Options{Config: must.Get(parse(t, topics))(t), Rooms: []room.Room{Room()}}))(t)
			defer a.Close()
			db, now := servers.DB(), time.Now()
			must.Get(db.ExecContext(t.Context(), "INSERT INTO outbox_events (order_id, payload, created_at) VALUES ('a', '{}', ?)", now.UnixMilli()))(t)
			box := must.Get(producer.NewOutbox(producer.OutboxOptions{Dialect: producer.SQLite}))(t)
			must.Do(t, box.Add(t.Context(), orderclose.SQL(db), orderclose.Order{ID: "a", CreatedAt: now, Due: now.Add(time.Hour)}))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			must.Do(t, a.Run(ctx, pipeline.Outbox))
			for table, want := range map[string]int{"outbox_schedules": 0, "outbox_events": left} {
				n := -1
				must.Do(t, db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM "+table).Scan(&n))
				expect.Equal(t, n, want, "rows of %s beside a dispatcher with %q", table, topics)
			}
		})
	}
}

// A sweeper deletes rows of the outboxes after a week, but not those that the webhook has not sent.
func TestRoom_ASweeperDropsNoEventThatWasNotSent(t *testing.T) {
	for topics, left := range map[string]int{example: 1, "": 0} {
		inBubble(t, func(r *rig) {
			old := time.Now().Add(-30 * 24 * time.Hour).UnixMilli()
			_, err := r.DB().ExecContext(r.Context(), "INSERT INTO outbox_events (order_id, payload, created_at) VALUES ('a', '{}', ?)", old)
			must.Do(r, err)
			a := must.Get(pipeline.New(pipeline.Options{
				Config: must.Get(parse(r.T, topics))(r), Connections: clients.Clients{Store: r.Store}, Rooms: []room.Room{Room()},
				SweepEvery: time.Hour, Logger: slog.New(slog.DiscardHandler),
			}))(r)
			defer a.Close()
			ctx, cancel := context.WithTimeout(r.Context(), 5*time.Minute)
			defer cancel()
			must.Do(r, a.Run(ctx, pipeline.Sweeper))
			expect.Equal(r, r.count("SELECT COUNT(*) FROM outbox_events"), left, "old rows beside a sweeper with %q", topics)
		})
	}
}

func TestCheck_SaysWhatWaitsForWhat(t *testing.T) {
	now := time.Now()
	judged := func(s state, err error) health.Verdict {
		return health.Judge(health.Facts{Now: now, Checks: append(ops.Checks(), Room().Checks...), Answers: map[string]health.Answer[any]{
			string(checkName): {Value: s, At: now, Err: err}, string(health.KafkaCheck): {Value: backlog.Status{}, At: now},
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
	expect.NoError(t, expect.Err(ask(ops.Pipeline{Config: without, Store: db}, t.Context())))
	expect.Is(t, expect.Err(ask(ops.Pipeline{Config: with}, t.Context())), health.ErrNoDatabase, "without a database")
	expect.That(t, expect.Err(ask(ops.Pipeline{Config: with, Store: db}, t.Context())) != nil, "without tables")
}

func TestCommands_RefuseWrongArguments(t *testing.T) {
	clitest.Refuses(t, Room(), map[string]string{
		"webhook sent":    "unknown command",
		"run webhook":     EnvSecret,
		"run all webhook": EnvSecret,
	})
}
