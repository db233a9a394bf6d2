package httpcall

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestRefuseBrowsers_OnlyIfTheyWouldChangeSomething(t *testing.T) {
	h := RefuseBrowsers(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for _, c := range []struct {
		method, header, value string
		want                  int
	}{
		{"POST", "", "", 200},
		{"POST", "Origin", "https://evil.example", 403},
		{"POST", "Origin", "null", 403},
		{"POST", "Sec-Fetch-Site", "same-origin", 403}, // a name of the page resolves to the loopback
		{"GET", "Origin", "https://evil.example", 200}, // the browser does not show the answer to the page
	} {
		r := httptest.NewRequest(c.method, "/", nil)
		if c.header != "" {
			r.Header.Set(c.header, c.value)
		}
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != c.want {
			t.Errorf("%+v: %d", c, w.Code)
		}
	}
}
