package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/orderclose/orderclose"
)

const (
	// timesSample is how many unpaid orders checkTimes reads, and timesBefore how long before the
	// present their due times begin: as long as two time zones are apart at most.
	timesSample = 1000
	timesBefore = 14 * time.Hour
	timesAfter  = 366 * 24 * time.Hour
)

// checkTimes looks for orders whose times can only come from a wrong time zone. It reads the sweep's
// index, and only a sample.
func (s *session) checkTimes(ctx context.Context, check string) checkup {
	now, err := s.Store.Now(ctx)
	var orders []orderclose.Order
	if err == nil {
		orders, err = s.Store.DueBetween(ctx, now.Add(-timesBefore), now.Add(timesAfter), orderclose.Order{}, timesSample)
	}
	if err != nil {
		return finding(check, err.Error(), "see the runbook, The database is down or slow")
	}
	for _, o := range orders {
		why := ""
		switch {
		case o.CreatedAt.After(now.Add(time.Minute)):
			why = "is created in the future"
		case o.CreatedAt.After(o.Due):
			why = "is due before it was created"
		default:
			continue
		}
		return finding(check, fmt.Sprintf("order %q %s: created %s, due %s, now %s", o.ID, why, stamp(o.CreatedAt), stamp(o.Due), stamp(now)),
			"see the runbook, Due times differ: a program writes local time into a column of UTC, or the zone of the mapping is wrong")
	}
	return passed(check, "%d unpaid orders were read; none is created in the future, or due before it was created", len(orders))
}
