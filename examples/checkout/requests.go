package checkout

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"orderclose"
	"orderclose/internal/store"
)

// keepRequests is how long a request's answer is kept for repeats of it.
const keepRequests = 24 * time.Hour

// Request names a request, so that a repeat has no second effect. The zero
// Request is one that has no name, and each of its kind is another one.
type Request struct {
	Key         string // the caller's; "" is none
	Fingerprint string // what is asked for: the same key with another one is a mistake
}

// Reply is what was answered to a request.
type Reply struct {
	Status   int // of HTTP
	Body     []byte
	Repeated bool // the answer of an earlier request of that name
}

// ErrOtherRequest says that the name of a request was used for another one.
var ErrOtherRequest = errors.New("the request id was used for another request")

// once runs do in a transaction and keeps its answer in it, so that either both
// are there or neither. A repeat gets that answer; one that comes while the first
// is under way waits for it. Only what was done is kept: a request that was
// refused may be made again.
func (s *Shop) once(ctx context.Context, r Request, do func(*store.Tx) (status int, answer any, err error)) (Reply, error) {
	var reply Reply
	err := s.o.Store.Checkout(ctx, func(t *store.Tx) error {
		reply = Reply{}
		if r.Key != "" {
			known, err := s.recall(ctx, t, r, &reply)
			if err != nil || known {
				return err
			}
		}
		status, answer, err := do(t)
		if err != nil {
			return err
		}
		body, err := json.Marshal(answer)
		if err != nil {
			return err
		}
		reply.Status, reply.Body = status, body
		if r.Key == "" {
			return nil
		}
		_, err = t.SQL().ExecContext(ctx, "UPDATE checkout_requests SET status = ?, body = ? WHERE request = ?",
			status, string(body), digest(r.Key))
		return err
	})
	return reply, err
}

// recall notes the request, or finds what was answered to it.
func (s *Shop) recall(ctx context.Context, t *store.Tx, r Request, reply *Reply) (known bool, err error) {
	fresh, err := inserted(ctx, t.SQL(), s.insertIgnore+"checkout_requests (request, fingerprint, status, body, created_at) VALUES (?, ?, 0, '', ?)",
		digest(r.Key), digest(r.Fingerprint), time.Now().UnixMilli())
	if err != nil || fresh {
		return false, err
	}
	var fingerprint, body string
	err = t.SQL().QueryRowContext(ctx, "SELECT fingerprint, status, body FROM checkout_requests WHERE request = ?", digest(r.Key)).
		Scan(&fingerprint, &reply.Status, &body)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return false, fmt.Errorf("%w: the request's row has just gone", orderclose.ErrContended)
	case err != nil:
		return false, err
	case fingerprint != digest(r.Fingerprint):
		return false, ErrOtherRequest
	}
	reply.Body, reply.Repeated = []byte(body), true
	return true, nil
}

// keepEvents is how long the id of an event is kept: a multiple of the week that
// the topic keeps events.
const keepEvents = 30 * 24 * time.Hour

// Tidy forgets old requests and old ids of events, each hour, until ctx ends.
func (s *Shop) Tidy(ctx context.Context) {
	tick := time.NewTicker(time.Hour)
	defer tick.Stop()
	for {
		for table, keep := range map[string]time.Duration{"checkout_requests": keepRequests, "checkout_events": keepEvents} {
			_, err := s.o.Store.DB().ExecContext(ctx, "DELETE FROM "+table+" WHERE created_at < ?", time.Now().Add(-keep).UnixMilli())
			if err != nil && ctx.Err() == nil {
				s.o.Logger.Warn("old rows could not be deleted", "table", table, "err", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}
