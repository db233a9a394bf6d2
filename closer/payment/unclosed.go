package payment

import (
	"sync"
	"time"

	"github.com/orderclose/orderclose"
)

// forgetAfter is how long an order that could not be closed is remembered without another failed close. A
// closer waits 4.4 minutes at most between two tries. After that another process tries the order, or it
// is a dead letter.
const forgetAfter = 5 * time.Minute

// unclosed remembers the orders whose payments were cancelled, and whose close then failed. Nobody can pay
// such an order, and its stock stays reserved. It is safe for concurrent use.
type unclosed struct {
	report func(oldest time.Time) // when the first close of the oldest order failed; zero: there is none

	mu     sync.Mutex
	since  map[string]time.Time // by order: when its close failed first
	forget *time.Timer          // forgets all orders; nil: no close has failed yet
}

// note takes the outcomes of closes that were tried after a cancel, or of a preview. An outcome without a
// verdict is a close that failed.
func (u *unclosed) note(outcomes []orderclose.Outcome, tried bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.since) == 0 && !tried {
		return // a preview only makes it forget
	}
	before, failed := len(u.since), false
	for _, o := range outcomes {
		switch v := o.Verdict; {
		case v == orderclose.AlreadyPaid, v == orderclose.AlreadyClosed, v == orderclose.NotDue, v == orderclose.Excluded,
			v == orderclose.Closed && tried:
			delete(u.since, o.OrderID)
		case tried: //mutant:cancelled-open-unreported
			if failed = true; u.since[o.OrderID].IsZero() {
				u.since[o.OrderID] = time.Now()
			}
		}
	}
	switch {
	case failed && u.forget == nil:
		u.forget = time.AfterFunc(forgetAfter, u.clear)
	case failed:
		u.forget.Reset(forgetAfter)
	case before == 0:
		return
	}
	var oldest time.Time
	for _, at := range u.since {
		if oldest.IsZero() || at.Before(oldest) {
			oldest = at
		}
	}
	u.report(oldest)
}

func (u *unclosed) clear() {
	u.mu.Lock()
	defer u.mu.Unlock()
	clear(u.since)
	u.report(time.Time{})
}
