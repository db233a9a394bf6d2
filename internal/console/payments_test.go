package console

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/store"
)

// A payment comes after the close. An operator refunds it, and it leaves the list and the verdict.
func TestPayments_ALatePaymentIsListedUntilAnOperatorResolvesIt(t *testing.T) {
	r := newRig(t)
	r.putStock("ink")
	contains(t, r.open("/payments"), `id="no-payments"`)
	r.addOrder("a<b>", "order-close", time.Now().Add(-time.Minute))
	if _, err := r.store.CloseOrders(t.Context(), orderclose.PathPipeline, []orderclose.CloseRequest{{OrderID: "a<b>"}}); err != nil {
		t.Fatal(err)
	}
	tx, err := r.store.DB().BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.store.RecordPayment(t.Context(), tx, store.LatePayment{OrderID: "a<b>", PaymentID: "pi_<1>", Amount: 1250, Currency: "EUR"}); err != nil || tx.Commit() != nil {
		t.Fatal(err)
	}
	r.c.late.Forget()
	r.c.asks.Late.Forget()
	contains(t, r.open("/payments"), `<tr data-late="1">`, "a&lt;b&gt;", "pi_&lt;1&gt;", "1250 EUR", "the provider&#39;s callback", `value="refunded"`, `value="reopened"`)
	contains(t, r.open("/"), `data-kind="payments_late"`, "orderclose payments late")
	var listed answer[[]store.LatePayment]
	if code := r.json(http.MethodGet, "/api/v1/payments", "", &listed); code != http.StatusOK || len(*listed.Value) != 1 || (*listed.Value)[0].Amount != 1250 {
		t.Errorf("%d %+v", code, listed)
	}

	path, page := r.plan(url.Values{"kind": {"refunded"}, "late": {"1"}})
	contains(t, page, `data-state="planned"`, "pi_&lt;1&gt;", `id="effect"`)
	again, _ := r.plan(url.Values{"kind": {"reopened"}, "late": {"1"}})
	contains(t, r.confirm(path), `data-state="done"`, "<bdi>ann</bdi>")
	contains(t, r.open("/payments"), `id="no-payments"`)
	contains(t, r.confirm(again), `data-state="failed"`, "refunded by ann")
	_, page = r.plan(url.Values{"kind": {"refunded"}, "late": {"1"}})
	contains(t, page, `data-state="nothing"`)
	_, page = r.plan(url.Values{"kind": {"refunded"}, "late": {"99"}})
	contains(t, page, `data-state="failed"`, "there is no such late payment: 99")
	if res, _ := r.do(http.MethodPost, "/plans", "en", url.Values{"kind": {"refunded"}, "late": {"x"}}); res.StatusCode != http.StatusBadRequest {
		t.Error(res.Status)
	}

	r.user = "bob" // a viewer
	if page := r.open("/payments"); strings.Contains(page, "<button>Refunded") {
		t.Errorf("a viewer may act:\n%s", page)
	}
	if res, _ := r.do(http.MethodPost, "/plans", "en", url.Values{"kind": {"refunded"}, "late": {"1"}}); res.StatusCode != http.StatusForbidden {
		t.Error(res.Status)
	}
}

func TestPayments_WithoutADatabaseThePageSaysSo(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Store = nil })
	contains(t, r.open("/payments"), ops.ErrNoDatabase.Error())
}
