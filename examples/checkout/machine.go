package checkout

// State is where an order is.
type State string

// The states. Closing is one that only readers see: an order past due whose
// close has not come to its end yet. In the database it is unpaid.
const (
	Unpaid    State = "unpaid"
	Paid      State = "paid"
	Shipped   State = "shipped"
	Confirmed State = "confirmed"
	Closed    State = "closed"
	Cancelled State = "cancelled"

	Closing State = "closing"
)

// Event is what can happen to an order.
type Event string

// The events. Close is the pipeline's.
const (
	Pay     Event = "pay"
	Cancel  Event = "cancel"
	Ship    Event = "ship"
	Confirm Event = "confirm"
	Close   Event = "close"
)

// transitions is all that may happen. What is not in it is refused.
var transitions = map[State]map[Event]State{
	Unpaid:  {Pay: Paid, Cancel: Cancelled, Close: Closed},
	Paid:    {Ship: Shipped},
	Shipped: {Confirm: Confirmed},
}

// Next returns the state that an event brings an order to; ok is false if the
// event may not happen.
func Next(s State, e Event) (next State, ok bool) {
	next, ok = transitions[s][e]
	return next, ok
}

// Final reports whether nothing can happen to an order any more.
func (s State) Final() bool { return s == Closed || s == Cancelled || s == Confirmed }
