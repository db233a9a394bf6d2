package httpcall

import "net/http"

// RefuseBrowsers answers 403 to requests that a browser sends for a page, unless they only read: GET and
// HEAD. A page of another site may send requests to the loopback, also under a host name of its own that
// resolves to it. Every browser sets Origin or Sec-Fetch-Site then; Alertmanager, curl and Kubernetes set
// neither. The header Host is not checked, because orchestrators use addresses and names of many kinds.
func RefuseBrowsers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reads := r.Method == http.MethodGet || r.Method == http.MethodHead
		if !reads && (r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != "") {
			http.Error(w, "requests from a browser are refused: send it with another client, such as curl", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}
