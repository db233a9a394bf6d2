package checkout

import (
	"context"

	"github.com/orderclose/orderclose/examples/checkout/shopdb"
)

// PutView writes a view as a shop does that has just read the order.
func PutView(s *Shop, v shopdb.View) { s.views.put(context.Background(), v, false) }
