// Package db holds what the packages of the store share: connections, what differs between databases, and the statements on the tables of orders.
// A Handle is a database with these statements; Checker, Closer and the others embed it. This package does not know them.
//
// The files:
//
//	handle.go                  a database: its mapping, its clock, its pool
//	connector.go               the checks of a new connection, and which servers will do
//	dialect.go                 what differs between databases
//	mysql.go, postgres.go      each of them; the package sqlite has the third
//	lock.go                    locks that belong to a connection
//	statements.go              the statements on orders and lines
//	tables.go                  the definitions of tables, rows that policies hide, and tables of months that do not fit the mapping
//	months.go                  the tables of orders by month
//	pages.go                   pages of orders by due time: the overdue ones, and those of a time
//	pagestatements.go          the statement of a page
//	duerule.go                 due times by rule: the delays in force
//	old.go                     which old orders of the shop stay open
//	sql.go                     queries and INSERTs; statements in a transaction of the shop
//	select.go                  reads that the server ends after a time
//	tx.go, fault.go            transactions and their retries; the meaning of errors
package db
