package release

import (
	"fmt"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/room"
)

// Role releases stock in a service. Only shops whose stock is in a service need it.
const Role = "release"

// The service that holds the stock, and its bearer token.
const (
	EnvURL   = "ORDERCLOSE_RELEASE_URL"
	EnvToken = "ORDERCLOSE_RELEASE_TOKEN"
)

// Room returns the room of stock that a service keeps, with Role. If r is nil, the Releaser is an HTTP that posts to
// ORDERCLOSE_RELEASE_URL with ORDERCLOSE_RELEASE_TOKEN; pipeline.FromEnvironment reads them.
func Room(r Releaser) room.Room {
	return room.Room{Name: "release", Variables: []string{EnvURL, EnvToken}, Roles: []room.Role{{
		Name: Role,
		Help: `release is for a shop that keeps its stock in a service: it calls ` + EnvURL + `
with the stock of each closed order. all includes it if that variable is set.
`,
		Kafka: true, ReadsEvents: true,
		Variables: func(*config.Config) []string { return []string{EnvURL} },
		InAll:     func(set func(string) bool) bool { return set(EnvURL) },
		New:       func(h room.Host) (room.Runner, error) { return newRunner(h, r) },
	}}}
}

func newRunner(h room.Host, r Releaser) (room.Runner, error) {
	c := h.Config
	if r == nil {
		url := h.Servers.Others[EnvURL]
		switch _, ok := config.WebURL(url); {
		case url == "":
			return room.Runner{}, fmt.Errorf("there is no service that keeps stock: set %s, or pass a Releaser to release.Room", EnvURL)
		case !ok: // the URL may have a secret
			return room.Runner{}, fmt.Errorf("%s is not a URL of http or https; write it such as https://stock.internal/release", EnvURL)
		case !config.Private(url) && !c.Accepts(config.WithoutTLS):
			return room.Runner{}, fmt.Errorf("%s is http:// of another machine: anybody on the way can read its token, "+
				"and answer in place of the service; write https://, or add %s to accept", EnvURL, config.WithoutTLS)
		}
		service := NewHTTP(url, h.Servers.Others[EnvToken])
		if h.Services != nil {
			service.Client.Transport = h.Services
		}
		r = service
	}
	event := ""
	if c.Orders != nil {
		event = c.Orders.Event
	}
	w, err := New(Options{
		Log:             h.Log,
		Releaser:        r,
		Group:           c.Group(Role, c.Topics.Events),
		EventsTopic:     c.Topics.Events,
		DeadLetterTopic: c.Topics.DeadLetter,
		Event:           event,
		Now:             h.Now,
		OnHang:          h.OnHang,
		Logger:          h.Logger.With("stage", Stage),
		Registerer:      h.Registerer,
		TracerProvider:  h.TracerProvider,
	})
	if err != nil {
		return room.Runner{}, err
	}
	return room.Runner{Needs: []room.Need{h.NeedTopic(c.Topics.Events)}, Run: w.Run}, nil
}
