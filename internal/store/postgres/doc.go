// Package postgres holds what the store needs on PostgreSQL 13 or newer: connections, the meaning of
// errors, and the SQL that differs from MySQL. It does not know the store, which imports it.
//
// The store writes its statements once, for all databases: names in backquotes, and ? for arguments.
// Each connection of this package, and Tx, takes such statements (Translate) and passes the arguments
// as quoted literals in one round trip. So PostgreSQL gives each argument the type of the column that it is
// compared with or written to: a text is an enum, a uuid or a number where the column is one.
//
// The files:
//
//	dsn.go        the DSN and the settings that are forced
//	connector.go  making a connection, the checks of it, and the meaning of errors
//	conn.go       a connection, or a transaction of the program's, that takes the store's statements
//	sql.go        the translation of statements, and those that only PostgreSQL has
//	describe.go   the definitions of tables, the plans of statements, and the code of triggers
package postgres
