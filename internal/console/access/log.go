package access

import (
	"log/slog"
	"net/http"
	"strings"
	"time"
)

// maxLoggedPath is how much of a path is logged, in bytes.
const maxLoggedPath = 200

// loggedPath returns what is logged of a path.
func loggedPath(path string) string { return cut(path, maxLoggedPath) }

// cut returns the beginning of a text, of at most so many bytes.
func cut(text string, most int) string {
	if len(text) > most {
		text = text[:most] + "…"
	}
	return strings.ToValidUTF8(text, "")
}

// logged logs each request at the level debug, without query and body.
func (g *Gate) logged(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !g.o.Logger.Enabled(r.Context(), slog.LevelDebug) {
			next.ServeHTTP(w, r)
			return
		}
		began := time.Now()
		s := &statusWriter{ResponseWriter: w, status: http.StatusOK}
		defer func() {
			g.o.Logger.Debug("console request", "method", r.Method, "path", loggedPath(r.URL.Path), "status", s.status, "duration", time.Since(began))
		}()
		next.ServeHTTP(s, r)
	})
}

// statusWriter remembers the status of the response.
type statusWriter struct {
	http.ResponseWriter
	status int
}

// WriteHeader keeps the status.
func (s *statusWriter) WriteHeader(status int) {
	s.status = status
	s.ResponseWriter.WriteHeader(status)
}

// Flush sends what was written, for server-sent events.
func (s *statusWriter) Flush() { _ = http.NewResponseController(s.ResponseWriter).Flush() }

// Unwrap lets http.ResponseController reach the connection.
func (s *statusWriter) Unwrap() http.ResponseWriter { return s.ResponseWriter }
