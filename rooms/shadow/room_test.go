package shadow

import (
	"context"
	"testing"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/pipeline"
	"github.com/orderclose/orderclose/room"
)

// ownStore closes orders elsewhere.
type ownStore struct{}

func (ownStore) CloseOrders(context.Context, orderclose.Path, []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	return nil, nil
}

func TestRoom_NamesWhatIsMissing(t *testing.T) {
	servers := pipeline.Servers{Brokers: []string{"127.0.0.1:1"}, DSN: "u@tcp(h)/d"}
	for _, c := range []struct {
		o     pipeline.Options
		roles []pipeline.Role
		want  string
	}{
		{pipeline.Options{}, []pipeline.Role{Role}, "Servers.Brokers"},
		{pipeline.Options{Servers: pipeline.Servers{Brokers: servers.Brokers}}, []pipeline.Role{Role}, "Servers.DSN"},
		{pipeline.Options{Servers: servers, Store: ownStore{}}, []pipeline.Role{Role}, "without Options.Store"},
		{pipeline.Options{Servers: servers}, []pipeline.Role{pipeline.Closer, Role}, "shadow runs beside another program that closes the orders: run it without closer and compensator"},
	} {
		c.o.Config, c.o.Rooms = config.Default(), []room.Room{Room()}
		app := must.Get(pipeline.New(c.o))(t)
		err := app.Run(t.Context(), c.roles...)
		app.Close()
		expect.Says(t, err, c.want, "%+v", c)
	}
}
