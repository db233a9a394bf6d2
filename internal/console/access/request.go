package access

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"
)

// MaxBody is the largest body of a request, in bytes.
const MaxBody = 1 << 20

// maxPublic is the largest body of a request to a public path, in bytes.
const maxPublic = 16 << 10

// bodyTimeout limits how long the body of a request may take to arrive.
const bodyTimeout = 30 * time.Second

// maxRequest is when the context of a request ends. Only server-sent events last that long. The
// browser then sends the request again, and its identity is checked again.
const maxRequest = 5 * time.Minute

// readBody reads the body of a POST, of at most limit bytes. Wrap has limited the time.
func readBody(w http.ResponseWriter, r *http.Request, limit int64) *Refusal {
	if r.Method != http.MethodPost {
		return nil
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if err != nil {
		w.Header().Set("Connection", "close") // otherwise the server would wait for the rest before it answers
		if _, exceeds := errors.AsType[*http.MaxBytesError](err); exceeds {
			return tooLarge
		}
		return badForm
	}
	// Otherwise a handler that takes longer would lose its client.
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	r.Body = io.NopCloser(bytes.NewReader(body))
	return nil
}

// canonical reports whether the path has no empty segment, no dots and no needless escapes. Then
// the Gate and every router agree about the page that the path means.
func canonical(r *http.Request) bool {
	clean := path.Clean(r.URL.Path)
	return r.URL.RawPath == "" && (r.URL.Path == clean || clean != "/" && r.URL.Path == clean+"/")
}

// below returns the path below the base path; "": the path is outside of it.
func (g *Gate) below(r *http.Request) string {
	at, ok := strings.CutPrefix(r.URL.Path, g.o.Settings.BasePath)
	if !ok || at != "" && at[0] != '/' {
		return ""
	}
	return at
}

func (g *Gate) public(at string) bool {
	return slices.ContainsFunc(g.o.Public, func(p string) bool {
		return at == p || strings.HasSuffix(p, "/") && strings.HasPrefix(at, p)
	})
}
