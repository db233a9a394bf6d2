package callback

import (
	"context"
	"database/sql"
	"testing"

	"github.com/go-sql-driver/mysql"
	gormmysql "gorm.io/driver/mysql"
	"gorm.io/gorm"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store/closetx"
	"github.com/orderclose/orderclose/internal/store/internal/db"
	"github.com/orderclose/orderclose/internal/store/money"
	"github.com/orderclose/orderclose/internal/store/schema"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// elsewhere is a transaction that finds the tables of another Store.
type elsewhere struct{ orderclose.Tx }

func (elsewhere) Query(_ context.Context, _ string, _ []any, each func(scan func(...any) error) error) error {
	return each(func(into ...any) error { *into[0].(*string) = "course"; return nil })
}

func TestRecordPayment_RefusesTheTablesOfAnotherStore(t *testing.T) {
	pool := sql.OpenDB(must.Get(mysql.NewConnector(mysql.NewConfig()))(t)) // it never connects
	defer pool.Close()
	h := &db.Handle{Dialect: db.MySQLDialect}
	h.Gorm = must.Get(gorm.Open(gormmysql.New(gormmysql.Config{Conn: pool, SkipInitializeWithVersion: true}), db.GormConfig()))(t)
	must.Do(t, h.MapOrders(nil, "", orderclose.Delays{}))
	s := recorder{&money.Payments{Closer: closetx.NewCloser(&schema.Checker{Handle: h})}}
	s.Home.Of = "goods"
	must.That(t, s.fits(s.LentBy(t.Context(), elsewhere{})) != nil, "a transaction in another database is accepted")
}
