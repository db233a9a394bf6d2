// Package store closes orders in a relational database. It holds the SQL of the pipeline, and
// all use of gorm.
//
// Open returns a Store on MySQL, MariaDB or PostgreSQL. Store.CloseOrders closes a batch, and
// Store.Migrate creates the reference schema. A mapping.Mapping names the tables and columns;
// the reference schema is a mapping too. The shop's side of the reference schema is in
// examples/checkout/shopdb.
//
// A Store has the methods of the packages below, which each have their files in their comment: closetx closes orders, money records payments, read
// shows what there is, schema checks and migrates tables, and internal/db is what they share.
//
// The files of this package:
//
//	store.go, aliases.go   opening a Store; the names by which programs know what other packages have
//	turn.go                what a turn of the loop reads: the clock, the pauses and overdue orders
//	recentcloses.go        the newest closes
//	sweeps.go              the compensator: its hours, rechecks, actions of operators; leases
//	reminders.go           reminders before the deadline
//
// The database's clock decides, in UTC, whatever the time zone of the server, the session
// or this machine. Times are whole milliseconds everywhere.
//
// MySQL, MariaDB and PostgreSQL are for production; the package postgres below has what only
// PostgreSQL needs. SQLite, in the package sqlite below, is for the demo and for tests in a
// synctest bubble. This package does not import it, so a production binary does not link it.
// The suite in storetest holds on all of them.
package store
