package store_test

import (
	"testing"

	"github.com/orderclose/orderclose/internal/testkit/storetest"
)

func TestStockByLocation(t *testing.T) {
	eachDatabase(t, func(t *testing.T) { storetest.RunWarehouses(t, server(t)) })
}

func TestOnClose_ChangesTheRowsOfItsOrdersOnly(t *testing.T) {
	eachDatabase(t, func(t *testing.T) { storetest.RunOnClose(t, server(t)) })
}
