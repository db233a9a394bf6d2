package pipeline_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/pipeline"
	"github.com/orderclose/orderclose/pipeline/pipelinetest"
)

// unreadLog is the log of a process whose lines must wait.
type unreadLog struct{ wait func() }

func (unreadLog) Enabled(context.Context, slog.Level) bool    { return true }
func (l unreadLog) WithAttrs([]slog.Attr) slog.Handler        { return l }
func (l unreadLog) WithGroup(string) slog.Handler             { return l }
func (l unreadLog) Handle(context.Context, slog.Record) error { l.wait(); return nil }

// A loop that hangs calls OnHang, also if its log hangs, and does not end the process of a program that embeds an App.
func TestApp_CallsOnHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers := must.Get(pipelinetest.Start(pipelinetest.Options{InBubble: true}))(t)
		defer servers.Close()
		cfg := must.Get(pipeline.Parse("shop.yaml", []byte("delays: {default: 1s}\nbuckets: [1s]\npartitions: 1\n")))(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		hangsAt, released := time.Now().Add(time.Minute), make(chan struct{})
		reasons := make(chan string, 1)
		end := sync.OnceFunc(func() {
			close(released)
			cancel()
		})
		wait := func() {
			if time.Now().After(hangsAt) {
				<-released
			}
		}
		app := must.Get(servers.App(ctx, pipeline.Options{
			Config: cfg,
			Logger: slog.New(unreadLog{wait}),
			Now: func() time.Time { // each turn of a loop calls it
				wait()
				return time.Now()
			},
			OnHang: func(why string) {
				select {
				case reasons <- why:
				default:
				}
				end()
			},
		}))(t)
		stop := context.AfterFunc(ctx, end) // so that the test also ends without OnHang
		defer stop()
		must.Do(t, app.Run(ctx, pipeline.Closer))
		select {
		case why := <-reasons:
			expect.That(t, strings.Contains(why, "hangs"), "OnHang was called with %q", why)
		default:
			t.Error("OnHang was not called")
		}
	})
}
