// Package store closes orders in a relational database. It holds the SQL of the pipeline, and
// all use of gorm.
//
// Open returns a Store on MySQL, MariaDB or PostgreSQL. Store.CloseOrders closes a batch, and
// Store.Migrate creates the reference schema. A mapping.Mapping names the tables and columns;
// the reference schema is a mapping too. The shop's side of the reference schema is in
// examples/checkout/shopdb.
//
// A batch is closed in one transaction. The order of its statements is part of the design:
//
//  1. read the pauses;
//  2. lock the orders' rows in id order, without those that other transactions lock, and read
//     their status, their due time and the database's clock;
//  3. compare-and-set UNPAID to CLOSED where the due time is not after that clock;
//  4. lock and read the lines of the orders that were closed; if another transaction locks a line, the
//     transaction is tried again without its order;
//  5. insert their receipts, whose unique key ensures that stock is released
//     once, run the user's statements (Mapping.OnClose), and insert the events into the outbox;
//  6. release the stock last, summed per SKU: rows that many orders share are locked briefly.
//
// No step waits in the server's queue for a row of orders, lines or stock, so a close is part of no deadlock, in whatever order the
// shop locks these rows. A write of rows of stock that another transaction locks is tried again for 50 ms. If that is
// not enough, the stock of the next, smaller batches is locked before step 3, and orders whose stock is locked are
// left out and tried again: locked.go. Statements of the user and triggers may wait, except triggers of the stock on MariaDB and PostgreSQL.
//
// The files:
//
//	store.go, connector.go                      opening a Store
//	server.go                                   which database server it is, and whether it will do
//	dialect.go, statements.go, sql.go           SQL: what differs between databases, and the statements
//	status.go, shards.go                        the statuses; the tables of orders by month
//	close.go                                    CloseOrders: a close, and a second one without locked orders
//	closing.go, decide.go                       one transaction of a close, and what it does with an order
//	stock.go, event.go, eventcolumns.go         the lines and the stock; the event of a close
//	stocktables.go                              several tables and locations of stock; optimistic locks of the shop
//	cause.go                                    why one order cannot be closed: by its rows and the server's error
//	refused.go                                  the orders of a batch whose rows show that they cannot be closed
//	onclose.go                                  the user's statements in a close
//	tx.go, fault.go                             transactions and their retries; the meaning of errors
//	locked.go                                   rows that others lock
//	pauses.go                                   pauses of closing
//	eventsagain.go                              events that their topic has lost
//	reminders.go                                reminders before the deadline
//	duerule.go                                  due times by rule: the delays in force
//	pagestatements.go                           the statement of a page
//	turn.go                                     what a turn of the loop reads: the clock, the pauses and overdue orders
//	pages.go, sweeps.go, payorders.go           the compensator: pages of overdue orders, sweeps, rechecks, payments
//	recordpayment.go                            payments that the shop records
//	latepayments.go                             money that comes after a close
//	lent.go                                     statements in a transaction of the shop
//	lock.go, lease.go                           locks that belong to a connection; leases, which do not
//	outbox.go                                   the outboxes of events and of schedules
//	counts.go                                   the categories of orders, and how many have which state
//	history.go                                  all rows of one order
//	audit.go, stockjudge.go                     the rows of many orders, and whether their stock moved once
//	migrate.go                                  the schema's versions; the steps are in the package migrations below
//	describe.go, notes.go, evidence.go          whether the shop's own tables match the mapping
//	writable.go, trial.go                       trial writes, and a close that is rolled back
//
// The database's clock decides, in UTC, whatever the time zone of the server, the session
// or this machine. Times are whole milliseconds everywhere.
//
// MySQL, MariaDB and PostgreSQL are for production; the package postgres below has what only
// PostgreSQL needs. SQLite, in the package sqlite below, is for the demo and for tests in a
// synctest bubble. This package does not import it, so a production binary does not link it.
// The suite in storetest holds on all of them.
package store
