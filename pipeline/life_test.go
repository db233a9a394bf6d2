package pipeline_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/pipeline"
	"github.com/orderclose/orderclose/pipeline/eventreader"
	"github.com/orderclose/orderclose/pipeline/pipelinetest"
)

// inBubble runs a test with an App on embedded servers.
func inBubble(t *testing.T, test func(t *testing.T, servers *pipelinetest.Servers, app *pipeline.App)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		servers := must.Get(pipelinetest.Start(pipelinetest.Options{InBubble: true}))(t)
		defer servers.Close()
		app := must.Get(servers.App(t.Context(), pipeline.Options{Config: shop(t)}))(t)
		test(t, servers, app)
	})
}

func shop(t *testing.T) *pipeline.Config {
	t.Helper()
	cfg := must.Get(pipeline.Parse("shop.yaml", []byte("delays: {default: 1s}\nbuckets: [1s]\npartitions: 1\n")))(t)
	return cfg
}

// start runs the roles, and returns the channel with the result of Run.
func start(ctx context.Context, app *pipeline.App, roles ...pipeline.Role) <-chan error {
	ended := make(chan error, 1)
	go func() { ended <- app.Run(ctx, roles...) }()
	return ended
}

func says(err error, want string) bool { return err != nil && strings.Contains(err.Error(), want) }

func TestWaitReady_ReturnsWhenTheRolesRun(t *testing.T) {
	inBubble(t, func(t *testing.T, servers *pipelinetest.Servers, app *pipeline.App) {
		waits := app.Ready()
		expect.That(t, len(waits) == 1 && waits[0] == "Run: was not called yet", "before Run: %q", waits)
		waiting := make(chan error, 1)
		go func() { waiting <- app.WaitReady(t.Context()) }()
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		ended := start(ctx, app, pipeline.AllRoles()...)
		if err := <-waiting; err != nil || len(app.Ready()) > 0 {
			t.Errorf("%v, and the App waits for %q", err, app.Ready())
		}
		expect.Is(t, app.WaitReady(ctx), nil, "a second time")
		cancel()
		expect.NoError(t, <-ended)
		if err := app.WaitReady(t.Context()); !says(err, "Run has returned") || errors.Is(err, pipeline.ErrClosed) {
			t.Errorf("after Run: %v", err)
		}
		if waits := app.Ready(); len(waits) != 1 || waits[0] != "App: Run has returned" {
			t.Errorf("after Run: %q", waits)
		}
		app.Close()
		err := app.WaitReady(t.Context())
		expect.That(t, errors.Is(err, pipeline.ErrClosed) && says(err, "Run has returned"), "after Run and Close: %v", err)
	})
}

func TestWaitReady_SaysWhatTheAppWaitsFor(t *testing.T) {
	inBubble(t, func(t *testing.T, servers *pipelinetest.Servers, app *pipeline.App) {
		servers.Broker.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		ended := start(ctx, app, pipeline.Relay)
		waiting, end := context.WithTimeout(ctx, 30*time.Second)
		defer end()
		err := app.WaitReady(waiting)
		expect.That(t, errors.Is(err, context.DeadlineExceeded) && says(err, "waiting for kafka: "), "%v", err)
		expect.NoError(t, <-ended)
	})
}

func TestClose_EndsRun(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *pipelinetest.Servers, app *pipeline.App) {
		ended := start(t.Context(), app, pipeline.AllRoles()...)
		must.Do(t, app.WaitReady(t.Context()))
		read := make(chan error, 1)
		go func() { read <- readLate(t.Context(), app) }()
		app.Close()
		expect.That(t, len(app.Ready()) != 0, "a closed App is ready")
		expect.Is(t, <-ended, pipeline.ErrClosed, "Run")
		expect.Is(t, <-read, pipeline.ErrClosed, "ReadEvents")
		app.Close()
		expect.Is(t, app.WaitReady(t.Context()), pipeline.ErrClosed, "WaitReady")
	})
}

// readLate reads order.paid_late events until ctx or the App ends.
func readLate(ctx context.Context, app *pipeline.App) error {
	return eventreader.Read(ctx, app, eventreader.Options[orderclose.OrderPaidLate]{Group: "refunds", Handle: func(context.Context,
		[]eventreader.Event[orderclose.OrderPaidLate]) error {
		return nil
	}})
}

func TestClose_BeforeRun(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *pipelinetest.Servers, app *pipeline.App) {
		app.Close()
		expect.Is(t, app.Run(t.Context(), pipeline.Relay), pipeline.ErrClosed, "Run")
		expect.Is(t, app.WaitReady(t.Context()), pipeline.ErrClosed, "WaitReady")
		expect.Is(t, readLate(t.Context(), app), pipeline.ErrClosed, "ReadEvents")
		ended, end := context.WithCancel(t.Context())
		end()
		must.Do(t, readLate(ended, app))
	})
}

func TestRun_RefusesARoleTwice(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *pipelinetest.Servers, app *pipeline.App) {
		err := app.Run(t.Context(), pipeline.Relay, pipeline.Closer, pipeline.Relay)
		expect.That(t, says(err, "role relay twice"), "%v", err)
	})
}

// The password of the next minute may be right.
func TestRun_GoesOnWhileItsPasswordIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := must.Get(mysql.ParseDSN("u@tcp(127.0.0.1:1)/d"))(t)
		must.Do(t, cfg.Apply(mysql.BeforeConnect(func(context.Context, *mysql.Config) error {
			return &mysql.MySQLError{Number: 1045, Message: "Access denied"}
		})))
		app := must.Get(pipeline.New(pipeline.Options{Config: shop(t), Servers: pipeline.Servers{MySQL: cfg}, Logger: slog.New(slog.DiscardHandler)}))(t)
		defer app.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		ended := start(ctx, app, pipeline.Compensator)
		ready := app.WaitReady(ctx)
		ran := <-ended
		expect.That(t, ran == nil && errors.Is(ready, context.DeadlineExceeded) && says(ready, "database: ") && says(ready, "Access denied"),
			"Run returns %v, WaitReady %v", ran, ready)
	})
}
