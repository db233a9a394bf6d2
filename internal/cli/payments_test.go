package cli

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/orderclose/orderclose/internal/clients"
	"github.com/orderclose/orderclose/internal/store"
)

// A callback came after the close, and the provider was asked about another order. Both are resolved.
func TestPayments_AreListedUntilTheyAreResolved(t *testing.T) {
	r := newRig(t)
	s := r.shop()
	p := (&session{Clients: clients.Clients{Store: s}, cfg: r.cfg}).pipeline()
	var out bytes.Buffer
	c := &common{env: Env{Stdout: &out}, config: defaultConfig, output: "table"}
	list := func(all bool, code int, wants ...string) {
		t.Helper()
		out.Reset()
		if err := c.paymentsLate(t.Context(), p, all); codeOf(err) != code {
			t.Errorf("exit %d, %v; want %d", codeOf(err), err, code)
		}
		for _, want := range wants {
			if !strings.Contains(out.String(), want) {
				t.Errorf("the list lacks %q:\n%s", want, out.String())
			}
		}
	}
	list(false, 0, "no late payment waits for a decision")
	tx, err := s.DB().BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.RecordPayment(t.Context(), tx, store.LatePayment{OrderID: "closed", PaymentID: "pi_1\n", Amount: 1, Currency: "EUR"}); !errors.Is(err, store.ErrBadPayment) {
		t.Errorf("a payment that would break the table: %v", err)
	}
	if _, err := s.RecordPayment(t.Context(), tx, store.LatePayment{OrderID: "closed", PaymentID: "pi_1", Amount: 1250, Currency: "EUR"}); err != nil || tx.Commit() != nil {
		t.Fatal(err)
	}
	list(false, 3, "closed  pi_1     1250 EUR", "callback", "1 not resolved; say what became of the money: orderclose payments resolve ID")

	resolve := func(id int64, how store.LateResolution, yes bool, code int) string {
		t.Helper()
		out.Reset()
		err := c.resolveLate(t.Context(), s, id, how, yes)
		if codeOf(err) != code {
			t.Errorf("exit %d, %v; want %d", codeOf(err), err, code)
		}
		if err != nil {
			return err.Error()
		}
		return out.String()
	}
	if shown := resolve(1, store.Refunded, false, 0); !strings.Contains(shown, "orderclose payments resolve 1 --refunded --yes") {
		t.Error(shown)
	}
	list(false, 3)
	if shown := resolve(1, store.Refunded, true, 0); !strings.Contains(shown, "refunded ") || !strings.Contains(shown, operator()) {
		t.Error(shown)
	}
	list(false, 0, "no late payment waits")
	list(true, 0, "refunded ", operator())
	for _, yes := range []bool{false, true} {
		if why := resolve(1, store.Reopened, yes, 5); !strings.Contains(why, "refunded by "+operator()) {
			t.Error(why)
		}
		resolve(99, store.Refunded, yes, 4)
	}
}
