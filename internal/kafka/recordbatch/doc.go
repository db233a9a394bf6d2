// Package recordbatch encodes and decodes record batches of Kafka (magic 2) without decoding
// the records in them. Forwarding a record costs a copy of its bytes.
//
//	split.go    Split finds the records of the batches in a fetch, with their append times
//	inflate.go  decompressing a batch, within a limit of memory
//	encode.go   Encode copies records into a new batch, byte for byte
package recordbatch
