package console

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/health"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/callback"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

// indexed waits until the console has read all dead letters.
func (r *rig) indexed(pending int) {
	r.t.Helper()
	for range 500 {
		if state := r.c.letters.State(); !state.At.IsZero() && state.Open.Total() == pending {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	r.t.Fatalf("the dead letters are not read: %+v", r.c.letters.State())
}

func TestDeadLetters_AreListedByCauseTimeAndTopicAndFoundByOrder(t *testing.T) {
	r := newRig(t)
	for i := range 120 {
		r.addDeadLetter(fmt.Sprintf("order-%d", i), []string{"failed", "not_found"}[i%2], time.Now())
	}
	r.indexed(120)
	page := r.open("/dead-letters")
	contains(t, page, `data-cause="failed"`, `<td class="n">60</td>`, `<tr data-at="0/119">`, `<a id="older" rel="next" href="?after=0%2F70">`)
	expect.Equal(t, strings.Count(page, "<tr data-at="), 50, "dead letters on the page")
	page = r.open("/dead-letters?cause=failed&after=0/118")
	contains(t, page, `<tr data-at="0/116">`, `<option value="failed" selected>`)
	expect.That(t, !strings.Contains(page, `data-at="0/117"`), "a dead letter of another cause is listed")
	contains(t, r.open("/dead-letters?topic=order-close"), `data-at="0/119"`)
	contains(t, r.open("/dead-letters?topic=nothing"), `id="no-letters"`)
	contains(t, r.open("/dead-letters?since=2100-01-01T00:00"), `id="no-letters"`)
	_, page = r.do(http.MethodPost, "/dead-letters", "en", url.Values{"order": {"order-7"}})
	contains(t, page, `data-at="0/7"`)
	expect.Equal(t, strings.Count(page, "<tr data-at="), 1, "dead letters of one order")
	for _, bad := range []string{"?after=x", "?since=soon"} {
		res, _ := r.do(http.MethodGet, "/dead-letters"+bad, "en", nil)
		expect.That(t, res.StatusCode == http.StatusBadRequest, "%s: %s", bad, res.Status)
	}
	contains(t, r.open("/dead-letters/0/7"), "order-7", "closing it failed", "order-close", "its order is not known")
	for _, missing := range []string{"/dead-letters/0/999", "/dead-letters/x/y"} {
		res, _ := r.do(http.MethodGet, missing, "en", nil)
		expect.That(t, res.StatusCode == http.StatusNotFound, "%s: %s", missing, res.Status)
	}
	contains(t, r.open("/"), `data-kind="letters_open"`)
}

func TestDeadLetters_ShowHostileContentHarmless(t *testing.T) {
	r := newRig(t)
	hostile := `<script>alert(1)</script>"><img src=x onerror=alert(1)>` + "\u202e\x1b[31m\x00"
	m := wire.Message{Key: []byte(hostile), Topic: hostile, Value: []byte(hostile + strings.Repeat("x", 60_000)),
		Headers: []wire.Header{{Key: hostile, Value: []byte(hostile)}}}
	must.Get(r.kafka.Append(t.Context(), r.cfg.Topics.DeadLetter, 0, []wire.Message{wire.DeadLetter(m, hostile, hostile, hostile)}))(t)
	r.indexed(1)
	for _, path := range []string{"/dead-letters", "/dead-letters/0/0", "/dead-letters?cause=" + url.QueryEscape(hostile)} {
		page := r.open(path)
		if strings.Contains(page, "<script>alert") || strings.Contains(page, "<img") || strings.Contains(page, "\u202e") || strings.ContainsAny(page, "\x1b\x00") {
			t.Errorf("%s:\n%.5000s", path, page)
		}
	}
}

// A payment comes after the close. An operator refunds it, and it leaves the list and the verdict.
func TestPayments_ALatePaymentIsListedUntilAnOperatorResolvesIt(t *testing.T) {
	r := newRig(t)
	r.putStock("ink")
	contains(t, r.open("/payments"), `id="no-payments"`)
	r.addOrder("a<b>", "order-close", time.Now().Add(-time.Minute))
	must.Get(r.store.CloseOrders(t.Context(), orderclose.PathPipeline, []orderclose.CloseRequest{{OrderID: "a<b>"}}))(t)
	tx := must.Get(r.store.DB().BeginTx(t.Context(), nil))(t)
	_, err := callback.RecordPayment(t.Context(), r.store.Payments, orderclose.SQL(tx),
		store.LatePayment{OrderID: "a<b>", PaymentID: "pi_<1>", Amount: 1250, Currency: "EUR"})
	must.That(t, err == nil && tx.Commit() == nil, "%v", err)
	r.c.late.Forget()
	ops.Forget(r.c.asks, ops.LateCheck)
	contains(t, r.open("/payments"), `<tr data-late="1">`, "a&lt;b&gt;", "pi_&lt;1&gt;", "refund-4:a&lt;b&gt;/pi_&lt;1&gt;", "1250 EUR",
		"the provider&#39;s callback", `value="refunded"`, `value="reopened"`)
	contains(t, r.open("/"), `data-kind="payments_late"`, "orderclose payments late")

	page := r.ask(url.Values{"kind": {"refunded"}, "late": {"1"}})
	contains(t, page, `data-state="asked"`, "pi_&lt;1&gt;", `id="effect"`)
	again := r.ask(url.Values{"kind": {"reopened"}, "late": {"1"}})
	contains(t, r.confirm(page), `data-state="done"`, "<bdi>ann</bdi>")
	contains(t, r.open("/payments"), `id="no-payments"`)
	contains(t, r.confirm(again), `data-state="nothing"`, "The money of a late payment was given back</dt><dd><bdi>ann</bdi>")
	kept := ""
	must.Do(t, r.store.DB().QueryRow("SELECT COALESCE(group_concat(who || ': ' || action || ': ' || result, '; '), '') FROM operator_actions").Scan(&kept))
	expect.Equal(t, kept, "ann: refunded late=1: done, 1 of 1", "the audit log")
	_, page = r.do(http.MethodPost, "/actions", "en", url.Values{"kind": {"refunded"}, "late": {"99"}})
	contains(t, page, "there is no such late payment: 99")
	res, _ := r.do(http.MethodPost, "/actions", "en", url.Values{"kind": {"refunded"}, "late": {"x"}})
	expect.That(t, res.StatusCode == http.StatusBadRequest, "%v", res.Status)

	r.user = "bob" // a viewer
	expect.That(t, !strings.Contains(r.open("/payments"), "<button>Refunded"), "a viewer may act")
	if res, _ := r.do(http.MethodPost, "/actions", "en", url.Values{"kind": {"refunded"}, "late": {"1"}}); res.StatusCode != http.StatusForbidden {
		t.Error(res.Status)
	}
}

// A template may show a value as it is: no page has a control character, or one that changes the direction of a text.
func TestPayments_ShowAHostileCurrencyHarmless(t *testing.T) {
	r := newRig(t)
	must.Get(r.store.DB().Exec("INSERT INTO late_payments (order_id, payment_id, amount, currency, source, found_at) VALUES ('a', 'b', 1, ?, 'callback', ?)",
		"E\x1b[2J\u202e\u009b", time.Now().UnixMilli()))(t)
	page := r.open("/payments")
	contains(t, page, `1 E\u001b[2J\u202e\u009b`)
	expect.That(t, !strings.ContainsAny(page, "\x1b\u202e\u009b"), "%q", page)
}

func TestPayments_WithoutADatabaseThePageSaysSo(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Store = nil })
	contains(t, r.open("/payments"), health.ErrNoDatabase.Error())
}
