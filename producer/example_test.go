package producer_test

import (
	"context"
	"database/sql"
	"fmt"

	_ "github.com/glebarez/go-sqlite"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/producer"
)

// The order and its schedule are written in one transaction: both or neither.
func ExampleOutbox_Add() {
	db, err := sql.Open("sqlite", ":memory:") // your database; orderclose migrate created the table
	if err != nil {
		panic(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	db.Exec("CREATE TABLE orders (id TEXT PRIMARY KEY, expire_at INTEGER NOT NULL)")
	db.Exec("CREATE TABLE outbox_schedules (id INTEGER PRIMARY KEY, order_id TEXT, payload TEXT, created_at INTEGER)")

	p, err := producer.New(producer.Options{Brokers: []string{"127.0.0.1:9092"}, TopicsFile: "../topics.yaml"})
	if err != nil {
		panic(err)
	}
	defer p.Close()
	outbox, err := producer.NewOutbox(producer.OutboxOptions{Dialect: producer.SQLite, TopicsFile: "../topics.yaml"})
	if err != nil {
		panic(err)
	}
	checkout := func(ctx context.Context, id, category string) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		order, err := p.OrderIn(ctx, producer.SQLite, orderclose.SQL(tx), id, orderclose.Facts{Categories: []string{category}})
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO orders (id, expire_at) VALUES (?, ?)", order.ID, order.Due.UnixMilli()); err != nil {
			return err
		}
		if err := outbox.Add(ctx, orderclose.SQL(tx), order); err != nil {
			return err
		}
		return tx.Commit()
	}
	fmt.Println(checkout(context.Background(), "order-17", "virtual"))
	fmt.Println(checkout(context.Background(), "order-17", "virtual") == nil) // fails: the order exists already

	var scheduled int
	db.QueryRow("SELECT COUNT(*) FROM outbox_schedules").Scan(&scheduled)
	fmt.Println(scheduled, "to be scheduled")
	// Output:
	// <nil>
	// false
	// 1 to be scheduled
}
