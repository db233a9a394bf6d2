package store_test

import (
	"testing"

	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/internal/testkit/storetest"
)

func TestMySQL_StockByLocation(t *testing.T) {
	eachServer(t, func(t *testing.T) { stockByLocation(t, ownDatabase) })
}

func TestPostgres_StockByLocation(t *testing.T) { stockByLocation(t, postgresDatabase) }

func stockByLocation(t *testing.T, database func(t *testing.T) string) {
	storetest.RunWarehouses(t, func(t *testing.T, m *mapping.Mapping) *store.Store {
		return open(t, store.Options{DSN: database(t), Orders: m})
	})
}
