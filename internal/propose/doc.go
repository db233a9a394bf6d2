// Package propose reads a shop's database, and proposes the section orders of topics.yaml for it.
//
//	names.go    what names and words suggest: data
//	read.go     reads tables, comments and rows
//	column.go   columns by their roles, and what values say
//	weigh.go    weighs tables and columns by their names, rows and references
//	status.go   weighs the values of a status
//	times.go    weighs times: type, zone, and how long unpaid orders stay open
//	stock.go    weighs lines and stock
//	write.go    writes topics.yaml, each choice with its evidence
//	preview.go  what the first sweep would do
//
// Read reads the database once: it only selects, and bounds each statement in time and rows. Facts.Propose is pure. What it cannot know is a
// Question, whose answer is a field of Answers.
package propose
