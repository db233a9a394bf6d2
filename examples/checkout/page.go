package checkout

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"errors"
	"html/template"
	"net/http"

	"github.com/orderclose/orderclose/examples/checkout/shopdb"
)

// maxRefresh is how long the page of an order that can change is shown before the browser loads it
// again, in seconds. It also sees a payment on another device.
const maxRefresh = 15

//go:embed page.html
var pageHTML string

//go:embed page.js
var pageScript string

var pageTemplate = template.Must(template.New("page").Parse(pageHTML))

// pagePolicy allows the page its own script and style, and nothing else.
var pagePolicy = func() string {
	sum := sha256.Sum256([]byte(pageScript))
	return "default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
		"'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}()

// pageData is what the page of an order shows.
type pageData struct {
	Order   Order
	Missing bool // no order has the id
	Refresh int  // seconds until the browser loads the page again; 0: never
	Minutes int64
	Seconds int64
	Script  template.JS
}

// pageOf returns the page of an order. Pure.
func pageOf(o Order) pageData {
	d := pageData{Order: o, Minutes: o.SecondsLeft / 60, Seconds: o.SecondsLeft % 60}
	switch {
	case o.Status == Unpaid && o.DueAt.IsZero():
		d.Refresh = maxRefresh
	case o.Status == Unpaid: // one second later than due, so that the next page shows the end
		d.Refresh = int(min(o.SecondsLeft+1, maxRefresh))
		d.Script = template.JS(pageScript)
	case o.Status == Closing:
		d.Refresh = 1
	case !o.Status.Final():
		d.Refresh = maxRefresh
	}
	return d
}

// page serves a page that counts down the time that is left to pay an order, by the database's clock.
// Without scripts the browser loads the page again; the script counts the seconds in between.
func (h *handler) page(w http.ResponseWriter, r *http.Request) error {
	status, data := http.StatusOK, pageData{}
	o, err := h.shop.Get(r.Context(), r.PathValue("id"))
	switch {
	case errors.Is(err, shopdb.ErrNoOrder):
		status, data.Missing = http.StatusNotFound, true
	case err != nil:
		return err
	default:
		data = pageOf(o)
	}
	var page bytes.Buffer
	if err := pageTemplate.Execute(&page, data); err != nil {
		return err
	}
	for name, value := range map[string]string{
		"Content-Type": "text/html; charset=utf-8", "Cache-Control": "no-store", "Content-Security-Policy": pagePolicy,
		"Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff",
	} {
		w.Header().Set(name, value)
	}
	w.WriteHeader(status)
	_, _ = w.Write(page.Bytes()) // an error means that the client has gone
	return nil
}
