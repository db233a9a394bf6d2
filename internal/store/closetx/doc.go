// Package closetx closes orders in the database. Closer.CloseOrders closes a batch.
//
// A batch is closed in one transaction. The order of its statements is part of the design:
//
//  1. read the pauses;
//  2. lock the orders' rows in id order, without those that other transactions lock, and read
//     their status, their due time and the database's clock;
//     MySQL and MariaDB lock an entry of an index apart from its row: entries.go locks those that the close changes in the same way;
//  3. lock and read the lines of the orders to close; if another transaction locks a line, the
//     transaction is tried again without its order;
//  4. compare-and-set UNPAID to CLOSED where the due time is not after that clock: a trigger that changes lines comes too late;
//  5. insert their receipts, whose unique key ensures that stock is released
//     once, run the user's statements (Mapping.OnClose), and insert the events into the outbox;
//  6. release the stock last, summed per SKU: rows that many orders share are locked briefly.
//
// No step waits in the server's queue for a row of orders, lines or stock, or for its entry in an index, so a close is part of no deadlock, in
// whatever order and through whatever index the shop locks these rows.
// A write of rows of stock that another transaction locks is tried again for 100 ms. If that is
// not enough, the stock of the next, smaller batches is locked before step 3, and orders whose stock is locked are
// left out and tried again: locked.go. Statements of the user and triggers may wait; triggers of the stock on MariaDB and PostgreSQL only after the
// stock was locked first. Orders of a batch that has waited in vain are closed one by one: refused.go.
//
// The files:
//
//	close.go                    CloseOrders: a close, and a second one without locked orders
//	orderrows.go, decide.go     the rows of orders that a transaction reads and locks, and what a close does with an order
//	transaction.go              one transaction of a close, with the user's statements
//	stock.go                    the lines, and one or several tables and locations of stock
//	locked.go, entries.go       rows, and entries of indexes, that others lock
//	event.go                    the event of a close
//	cause.go                    why one order cannot be closed: by its rows and the server's error
//	refused.go                  the orders of a batch whose rows show that they cannot be closed
//	pauses.go                   pauses of closing
//	writable.go, trial.go       trial writes, and a close that is rolled back
package closetx
