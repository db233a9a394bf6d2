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

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/examples/checkout/shopdb"
)

// keepRequests is how long the answer of a request is kept for repeats.
const keepRequests = 24 * time.Hour

// Request identifies a request, so that a repeat has no second effect. The zero Request has no key:
// it is never a repeat.
type Request struct {
	Key         string // the caller's key; empty: none
	Fingerprint string // the content: a repeat of a key must have the same fingerprint
}

// Reply is the answer to a request.
type Reply struct {
	Status   int // HTTP status
	Body     []byte
	Repeated bool // the answer is that of an earlier request with this key
}

// ErrOtherRequest says that a key was used for another request.
var ErrOtherRequest = errors.New("the idempotency key was used for another request")

// idempotent runs do in a transaction that also stores the answer, so that both are committed or
// neither. A repeat gets the stored answer; a repeat that comes while the first request is under
// way waits for it. Only successful answers are stored: a request that was refused may be sent
// again.
func (s *Shop) idempotent(ctx context.Context, r Request, do func(*shopdb.Tx) (status int, answer any, err error)) (Reply, error) {
	var reply Reply
	err := s.orders.Checkout(ctx, func(t *shopdb.Tx) error {
		reply = Reply{}
		if r.Key != "" {
			known, err := s.recordRequest(ctx, t, r, &reply)
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

// recordRequest records the request, or finds the answer of an earlier one.
func (s *Shop) recordRequest(ctx context.Context, t *shopdb.Tx, r Request, reply *Reply) (known bool, err error) {
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
		return false, fmt.Errorf("%w: the request's row was just deleted", orderclose.ErrContended)
	case err != nil:
		return false, err
	case fingerprint != digest(r.Fingerprint):
		return false, ErrOtherRequest
	}
	reply.Body, reply.Repeated = []byte(body), true
	return true, nil
}

// DeleteOldRows deletes old requests and the records of old events, each hour, until ctx ends.
func (s *Shop) DeleteOldRows(ctx context.Context) {
	tick := time.NewTicker(time.Hour)
	defer tick.Stop()
	for {
		_, err := s.o.DB.ExecContext(ctx, "DELETE FROM checkout_requests WHERE created_at < ?", time.Now().Add(-keepRequests).UnixMilli())
		if err := errors.Join(err, s.notices.DeleteOld(ctx)); err != nil && ctx.Err() == nil {
			s.o.Logger.Warn("deleting old rows failed", "err", err)
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
