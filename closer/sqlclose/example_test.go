package sqlclose_test

import (
	"context"
	"database/sql"
	"fmt"

	_ "github.com/go-sql-driver/mysql"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/closer/sqlclose"
)

// Close on read: a customer opens an order that is overdue and that nothing has closed yet.
func Example() {
	db, err := sql.Open("mysql", "shop:secret@tcp(127.0.0.1:3306)/shop?parseTime=true&loc=UTC")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	orders, err := sqlclose.New(sqlclose.Options{DB: db})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer orders.Close()
	out, err := orders.CloseOrders(context.Background(), orderclose.PathTouch, []orderclose.CloseRequest{{OrderID: "order-17"}})
	if err != nil {
		fmt.Println("show the order as it is:", err)
		return
	}
	fmt.Println(out[0].Verdict) // closed, already_paid, not_due …
}
