package console

import (
	"net/http"

	"github.com/orderclose/orderclose/internal/console/access"
)

// loginData is what the login form shows.
type loginData struct {
	access.LoginPage
}

func (c *Console) serveLogin(w http.ResponseWriter, r *http.Request, p access.LoginPage) {
	c.render(w, r, p.Status, c.newPage(r, "login", loginData{p}))
}

// serveRefusal answers a request that may not be served.
func (c *Console) serveRefusal(w http.ResponseWriter, r *http.Request, refusal access.Refusal) {
	if refusal.API {
		writeError(w, refusal.Status, refusal.Text)
		return
	}
	c.renderProblem(w, r, refusal.Status, "refusal."+string(refusal.Reason))
}
