package store

// Status is the state of an order as the column orders.status has it.
type Status int8

// An order begins unpaid and leaves that state once.
const (
	Unpaid    Status = 0
	Paid      Status = 1
	Closed    Status = 2
	Cancelled Status = 3
)
