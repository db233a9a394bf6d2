package compensator

import (
	"context"
	"fmt"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/overdue"
)

const (
	// newsBack is by how much the news of a turn reach behind the cutoff of the last one: transactions commit out of order.
	newsBack = 15 * time.Second
	// newHolderBack is by how much the news of a new holder reach behind the cutoff of its first turn, in its first minute: the one before may have
	// asked for none since a turn before it was killed.
	newHolderBack, newHolderTime = 45 * time.Second, time.Minute
)

// newsWindow returns the due times of the news: those since the lesser of this cutoff and that of the last turn, less newsBack.
func (t *turn) newsWindow(cutoff time.Time) overdue.Window {
	since := cutoff
	if !t.newsUpTo.IsZero() && t.newsUpTo.Before(cutoff) {
		since = t.newsUpTo
	}
	if t.took.now.IsZero() {
		t.took = databaseClock{cutoff, t.began}
	}
	if first := t.took.now.Add(-newHolderBack); t.began.Sub(t.took.at) < newHolderTime && first.Before(since) { //mutant:new-holder-looks-back
		since = first
	}
	return t.news.back(since.Add(-newsBack), cutoff)
}

// readNews reads news. If only a shorter window could be read, what is before it was not.
func (t *turn) readNews(ctx context.Context, w overdue.Window) (overdue.Found, error) {
	found, covers, err := t.read(ctx, &t.news, w)
	if covers.After.Due.After(w.After.Due) && found.All {
		found.All, found.Reached = false, covers.After
	}
	return found, err
}

// askNews asks for the orders that came due since the last turn, the newest first, in half of the turn at most. What it leaves is older.
func (t *turn) askNews(ctx context.Context, found overdue.Found) error {
	from := t.newsWindow(t.cutoff).After.Due
	t.newsUpTo = t.cutoff
	for {
		fresh := t.untried(found.Orders, false)
		n, err := t.ask(ctx, kindNews, fresh, newsTime)
		if n < len(fresh) {
			t.skip(fresh[n:])
		}
		if err != nil || found.All {
			return err
		}
		if !t.before(newsTime) || found.Reached.Due.IsZero() {
			t.skipTo(from)
			return nil
		}
		next := overdue.Window{After: orderclose.Order{Due: from}, To: found.Reached.Due, Newest: true, Before: found.Reached}
		if t.o.Reader == nil { // pages of an own Store go forward
			next = overdue.Window{After: found.Reached, To: t.cutoff}
		}
		if found, err = t.readNews(ctx, next); err != nil {
			return fmt.Errorf("read the news before order %q: %w", next.Before.ID, err)
		}
	}
}

// skip notes orders that are left to the pass.
func (t *turn) skip(orders []orderclose.Order) {
	for _, o := range orders {
		t.skipTo(o.Due)
	}
}

func (t *turn) skipTo(due time.Time) {
	t.left = true
	if t.skipped.IsZero() || due.Before(t.skipped) {
		t.skipped = due
	}
}
