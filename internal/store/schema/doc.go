// Package schema brings the tables of orderclose to the version that a program needs, and says whether the shop's own tables and the server will do.
//
// The files:
//
//	migrate.go                     the schema's versions; the steps are in the package migrations
//	describe.go                    whether the shop's tables match the mapping
//	notes.go                       hints on them, and what their orders say about it
//	filled.go                      what they hold where only orderclose writes, and stock below zero
//	server.go                      which server it is, and whether its settings are safe
package schema
