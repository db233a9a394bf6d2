// Package money marks orders paid, and records payments.
//
// The files:
//
//	payments.go           orders that the provider says are paid, and payments that the shop records
//	latepayments.go       money that comes after a close
package money
