package signed

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"orderclose"
)

// MaxRequest is the largest request that a receiver takes, in bytes: ten times
// what the largest batch has.
const MaxRequest = 4 << 20

// readWithin is how long a request may take to arrive. Until it has, nobody knows who
// sends it, and the shop's own server may have no limit.
const readWithin = 10 * time.Second

// Receive reads a signed request into in, within 10 s. If there is something wrong with it,
// it has been answered, and the result is false.
func Receive(w http.ResponseWriter, r *http.Request, secrets []string, now time.Time, in any) bool {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "send a POST", http.StatusMethodNotAllowed)
		return false
	}
	// A ResponseWriter that cannot, as in a test, has no connection to keep.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(readWithin))
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxRequest))
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		http.Error(w, "the request is too large", http.StatusRequestEntityTooLarge)
		return false
	}
	if err != nil {
		http.Error(w, "the request broke off", http.StatusBadRequest)
		return false
	}
	if err := Verify(secrets, r.Header, body, now); err != nil {
		http.Error(w, err.Error(), http.StatusUnauthorized)
		return false
	}
	if err := json.Unmarshal(body, in); err != nil {
		http.Error(w, "the request is not what docs/http.md describes: "+err.Error(), http.StatusBadRequest)
		return false
	}
	return true
}

// Reply answers a request: with out as JSON; or, if err is set, with 503 where
// that is orderclose.ErrUnavailable, and else with 500. The caller sees the text
// of the error.
func Reply(w http.ResponseWriter, out any, err error) {
	switch {
	case errors.Is(err, orderclose.ErrUnavailable):
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	body, err := json.Marshal(out)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body) // whoever went away asks again
}
