// Package store keeps orders in a relational database and closes them there.
// It is all of the SQL, and of gorm, that the project has.
//
// The close is one transaction for a whole batch, and its statements have an
// order that is part of the design:
//
//  1. lock the orders' rows in id order, and read their status, their due time
//     and the database's clock;
//  2. compare-and-set UNPAID to CLOSED where the due time is not after that clock;
//  3. read the lines of the orders that were won;
//  4. insert their ledger rows and their receipts, which have unique keys, so
//     that nothing can be given back twice, and their events, into the outbox;
//  5. give back the stock, summed per SKU and in SKU order, last: rows that many
//     orders share are locked for as short as possible, and never crosswise.
//
// Which tables and columns these are says a tables.Mapping; the reference schema is
// one of them.
//
// The clock that decides is the database's, in UTC whatever zone the server, the
// session or this machine is in. Times are whole milliseconds everywhere.
//
// MySQL and MariaDB are for production. SQLite, in the package sqlite below, is
// for the demo and for tests inside a synctest bubble; this package does not
// import it, so a production binary does not link it. The suite in storetest
// holds on all of them.
package store
