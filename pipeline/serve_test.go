package pipeline

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// TestServe_DisconnectsSlowClients: an idle client loses its connection, and so does one that sends or reads slowly.
func TestServe_DisconnectsSlowClients(t *testing.T) {
	const post = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9999\r\n\r\n"
	for name, c := range map[string]struct {
		send   string
		within time.Duration // the connection must be closed by then
	}{
		"no headers":        {"GET / HTTP/1.1\r\n", headersWithin},
		"no body":           {post, requestWithin},
		"reads nothing":     {"GET /large HTTP/1.1\r\nHost: x\r\n\r\n", answerWithin},
		"idle afterwards":   {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", idleWithin},
		"too large headers": {"GET / HTTP/1.1\r\nX: " + strings.Repeat("x", 2*maxHeaderBytes) + "\r\n\r\n", headersWithin},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mux := http.NewServeMux()
				mux.HandleFunc("/", func(_ http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) })
				mux.HandleFunc("/large", func(w http.ResponseWriter, _ *http.Request) { w.Write(bytes.Repeat([]byte("x"), 1<<20)) })
				listener := testkit.Listen()
				ctx, cancel := context.WithCancel(t.Context())
				served := make(chan error)
				go func() { served <- ServeOn(ctx, listener, mux, slog.New(slog.DiscardHandler)) }()
				client, err := listener.Transport().DialContext(ctx, "tcp", "x")
				must.Do(t, err)
				go io.WriteString(client, c.send) // the server may not read all of it
				began := time.Now()
				if name == "reads nothing" {
					time.Sleep(c.within + time.Second)
				}
				client.SetReadDeadline(began.Add(c.within + 2*time.Second))
				_, err = io.Copy(io.Discard, client)
				if late, ok := err.(net.Error); ok && late.Timeout() {
					t.Errorf("the connection is still open after %v", time.Since(began))
				}
				client.Close()
				cancel()
				listener.Close()
				if err := <-served; err != nil && !strings.Contains(err.Error(), "closed") {
					t.Error(err)
				}
			})
		})
	}
}
