// Package warehouse gives the stock of closed orders back to a service that keeps it: a reader of events, to be copied.
package warehouse

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/pipeline/eventreader"
)

const (
	// callTimeout is how long the service has for one call. The reader of events sets no limit.
	callTimeout = 3 * time.Second
	// A call that fails is repeated after firstPause, and then after up to longestPause.
	firstPause, longestPause = 100 * time.Millisecond, 10 * time.Second
)

// Return is a quantity of one SKU that a closed order held, as the service gets it.
type Return struct {
	OrderID  string `json:"order_id"`
	SKU      string `json:"sku"`
	Quantity int64  `json:"quantity"`
}

// Service is the service that keeps the stock.
type Service struct {
	// URL gets a POST for each Return, with its key in the header Idempotency-Key. It answers 2xx, and 409 for a key that it has
	// seen: then it changes nothing. Any other 4xx but 408 and 429 refuses the return for good.
	URL    string
	Client *http.Client
	// Refused keeps a return that the service refuses for good, until a person has looked at it. Its error repeats the call.
	Refused func(ctx context.Context, key string, r Return, answer string) error
	Logger  *slog.Logger
}

// Handle gives back what the orders of events held. It is the Handle of eventreader.Options. It repeats each call by itself: after an error
// all events of the batch would come again.
func (s Service) Handle(ctx context.Context, events []eventreader.Event[orderclose.OrderClosed]) error {
	for _, e := range events {
		for _, line := range e.Data.Release {
			r := Return{e.Data.OrderID, line.SKU, line.Quantity}
			for pause := firstPause; ; pause = min(2*pause, longestPause) {
				err := s.giveBack(ctx, line.Key, r)
				if err == nil {
					break
				}
				s.Logger.Warn("the service did not take the stock back, will retry", "order", r.OrderID, "sku", r.SKU, "quantity", r.Quantity, "err", err)
				select {
				case <-time.After(pause):
				case <-ctx.Done():
					return ctx.Err()
				}
			}
		}
	}
	return nil
}

func (s Service) giveBack(ctx context.Context, key string, r Return) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	body, err := json.Marshal(r)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", url.QueryEscape(key)) // a header has no room for every id
	answer, err := s.Client.Do(req)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	switch code := answer.StatusCode; {
	case code/100 == 2, code == http.StatusConflict:
		return nil
	case code/100 == 4 && code != http.StatusRequestTimeout && code != http.StatusTooManyRequests:
		return s.Refused(ctx, key, r, answer.Status)
	default:
		return fmt.Errorf("the service answers %s", answer.Status)
	}
}
