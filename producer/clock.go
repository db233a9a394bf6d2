package producer

import (
	"context"
	"fmt"
	"time"

	"github.com/orderclose/orderclose"
)

// nowStatements read the database's clock in microseconds since 1970. That is a number, so no driver and no time zone changes it.
var nowStatements = map[Dialect]string{
	MySQL:    "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3))",
	Postgres: "SELECT (EXTRACT(EPOCH FROM statement_timestamp()) * 1000000)::bigint",
}

// Now returns the time of the database's clock, in whole milliseconds, by a statement in a transaction. With SQLite it is the clock of
// this process. An error comes from the database: roll the transaction back.
func (d Dialect) Now(ctx context.Context, tx orderclose.Tx) (time.Time, error) {
	query, known := nowStatements[d]
	if !known {
		return time.Now().Truncate(time.Millisecond), nil
	}
	var micros int64
	err := tx.Query(ctx, query, nil, func(scan func(...any) error) error { return scan(&micros) })
	if err != nil {
		return time.Time{}, fmt.Errorf("read the database's clock: %w", err)
	}
	return time.UnixMicro(micros).Truncate(time.Millisecond), nil
}

// OrderIn returns an order that is created now, by the database's clock, with the due time that Delays and its rules give it. Call it in
// the transaction that writes the order. The database's clock also decides when the order is due, so a wrong clock of this
// machine closes no order too early. The CreatedAt of facts is not used. Otherwise OrderIn is OrderWith. An error is that of Dialect.Now.
func (p *Producer) OrderIn(ctx context.Context, d Dialect, tx orderclose.Tx, id string, facts orderclose.Facts) (o orderclose.Order, err error) {
	if facts.CreatedAt, err = d.Now(ctx, tx); err != nil {
		return o, err
	}
	return p.OrderWith(id, facts), nil
}

// dueAlready reports an order that is due when it is scheduled. It may be closed before its customer can pay.
func dueAlready(order orderclose.Order, now time.Time, report func(orderclose.Order)) bool {
	if order.Due.After(now) {
		return false
	}
	if report != nil {
		report(order)
	}
	return true
}
