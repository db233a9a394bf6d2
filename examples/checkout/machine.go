package checkout

// State is the state of an order.
type State string

// The states. Only readers see Closing: an order past due whose close has not finished. In the
// database it is unpaid.
const (
	Unpaid    State = "unpaid"
	Paid      State = "paid"
	Shipped   State = "shipped"
	Confirmed State = "confirmed"
	Closed    State = "closed"
	Cancelled State = "cancelled"

	Closing State = "closing"
)

// Event is an event of an order.
type Event string

// The events. The pipeline causes Close.
const (
	Pay     Event = "pay"
	Cancel  Event = "cancel"
	Ship    Event = "ship"
	Confirm Event = "confirm"
	Close   Event = "close"
)

// transitions lists the allowed events. Any other event is refused.
var transitions = map[State]map[Event]State{
	Unpaid:  {Pay: Paid, Cancel: Cancelled, Close: Closed},
	Paid:    {Ship: Shipped},
	Shipped: {Confirm: Confirmed},
}

// Next returns the state after an event. ok is false if the event is not allowed.
func Next(s State, e Event) (next State, ok bool) {
	next, ok = transitions[s][e]
	return next, ok
}

// Final reports whether no event is possible any more.
func (s State) Final() bool { return s == Closed || s == Cancelled || s == Confirmed }
