package release

import (
	"log/slog"
	"testing"

	"github.com/orderclose/orderclose/internal/cli/clitest"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/room"
)

// The worker sends a token, and believes that stock was returned.
func TestRoom_RefusesAServiceWithoutTLS(t *testing.T) {
	for _, c := range []struct{ url, accept, want string }{
		{"", "", "set ORDERCLOSE_RELEASE_URL, or pass a Releaser to release.Room"},
		{"hunter2", "", "ORDERCLOSE_RELEASE_URL is not a URL of http or https"},
		{"http://stock.internal/release", "", "add without_tls to accept"},
		{"http://stock.internal/release", "accept: [without_tls]\n", "Options need Log"},
		{"https://stock.internal/release", "", "Options need Log"},
	} {
		h := room.Host{
			Config:  must.Get(config.Parse("shop.yaml", []byte(c.accept+"buckets: [1m]\n")))(t),
			Servers: config.Servers{Others: map[string]string{EnvURL: c.url, EnvToken: "t"}}, Logger: slog.New(slog.DiscardHandler),
		}
		_, err := Room(nil).Roles[0].New(h)
		expect.Says(t, err, c.want, "%+v", c)
	}
}

func TestRoom_RequiresTheService(t *testing.T) {
	clitest.Refuses(t, Room(nil), map[string]string{"run release": EnvURL})
}
