package ordercache

import (
	"testing"

	"github.com/orderclose/orderclose/examples/checkout/shopdb"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

func TestCache_AReadThatBeganBeforeAChangeStoresNothing(t *testing.T) {
	c := must.Get(New(2))(t)
	slow := c.Begin("a")
	_, ok := c.Get("a")
	expect.That(t, !ok, "a view while it is read")
	c.Remove("a")
	slow.End(shopdb.View{Version: 1})
	_, ok = c.Get("a")
	expect.That(t, !ok, "a view from before the change")
	c.Begin("a").End(shopdb.View{Version: 2})
	v, _ := c.Get("a")
	expect.Equal(t, v.Version, 2, "version after the change")
}
