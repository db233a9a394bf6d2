package access

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"path"
	"strings"
	"time"
)

// MaxBody is the largest body of a request, in bytes.
const MaxBody = 1 << 20

// bodyTimeout limits how long the body of a request may take to arrive.
const bodyTimeout = 30 * time.Second

// maxRequest is when the context of a request ends. An action takes 4 minutes at most.
const maxRequest = 5 * time.Minute

// readBody reads the body of a POST, of at most MaxBody bytes. Wrap has limited the time.
func readBody(w http.ResponseWriter, r *http.Request) *Refusal {
	if r.Method != http.MethodPost {
		return nil
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBody))
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

// public reports whether a request is for a file that needs no identity: style and scripts, which have no data.
func (g *Gate) public(r *http.Request) bool {
	return r.Method != http.MethodPost && strings.HasPrefix(r.URL.Path, g.o.Settings.BasePath+"/static/")
}
