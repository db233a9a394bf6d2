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
	orders, err := sqlclose.New(sqlclose.Options{DSN: "shop:secret@tcp(127.0.0.1:3306)/shop"})
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

// The callback of a payment provider: the order is paid, or the money came too late and is on record.
func ExampleStore_RecordPayment() {
	db, err := sql.Open("mysql", "shop:secret@tcp(127.0.0.1:3306)/shop?parseTime=true&loc=UTC")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	orders, err := sqlclose.New(sqlclose.Options{DSN: "shop:secret@tcp(127.0.0.1:3306)/shop"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer orders.Close()
	ctx := context.Background()
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		fmt.Println("answer 503, so that the provider calls again:", err)
		return
	}
	defer tx.Rollback() // does nothing after the commit
	result, err := orders.RecordPayment(ctx, orderclose.SQL(tx), sqlclose.Payment{OrderID: "order-17", ID: "pi_3Nabc", Amount: 1250, Currency: "EUR"})
	if err == nil {
		err = tx.Commit()
	}
	if err != nil {
		fmt.Println("answer 503, so that the provider calls again:", err)
		return
	}
	fmt.Println("answer 200:", result) // paid, already_paid or paid_late
}
