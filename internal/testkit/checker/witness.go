package checker

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"sync"
	"time"
)

// Witness looks for early closes while a run goes on: closed orders whose due time has not come. It reads the due times first, and then the database's
// clock. Of the columns that a stage writes, it uses the status only.
type Witness struct {
	DB *sql.DB
	// Query selects the due times of the closed orders that are not due yet; default: EarlyQuery.
	// Clock selects the database's time; default: ClockQuery.
	Query, Clock string

	mu         sync.Mutex
	early      int
	looks      int
	blindUntil time.Time
	blind      int
}

// The queries for MariaDB and MySQL.
const (
	EarlyQuery = "SELECT expire_at FROM orders WHERE status = 2 AND expire_at > UTC_TIMESTAMP(3)"
	ClockQuery = "SELECT UTC_TIMESTAMP(3)"
)

// lookInterval is the pause between two looks.
const lookInterval = 250 * time.Millisecond

// Watch looks until ctx ends. While the database does not answer, the witness sees nothing. The verdict at the end of the run covers that time.
func (w *Witness) Watch(ctx context.Context) {
	for ctx.Err() == nil {
		w.Look(ctx)
		select {
		case <-ctx.Done():
		case <-time.After(lookInterval):
		}
	}
}

// Look looks once.
func (w *Witness) Look(ctx context.Context) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	n, err := w.count(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil || w.blind > 0 || began.Before(w.blindUntil) {
		return
	}
	w.looks++
	w.early = max(w.early, n)
}

// count counts the closed orders that are not due. The time of a statement is that of its beginning. If it then waits for a lock, it may see an order
// that was closed meanwhile, and was due by then. So the due times are compared with a time that is read afterwards.
func (w *Witness) count(ctx context.Context) (n int, err error) {
	var dues []time.Time
	err = read(ctx, w.DB, cmp.Or(w.Query, EarlyQuery), func(scan func(...any) error) error {
		var due moment
		err := scan(&due)
		dues = append(dues, due.t)
		return err
	})
	if err != nil || len(dues) == 0 {
		return 0, err
	}
	var now moment
	if err := w.DB.QueryRowContext(ctx, cmp.Or(w.Clock, ClockQuery)).Scan(&now); err != nil {
		return 0, err
	}
	for _, due := range dues {
		if due.After(now.t) {
			n++
		}
	}
	return n, nil
}

// Blind makes the witness ignore what it sees until the function that it returns is called, and for a time after that. After the clock of the database
// was set back, orders that were rightly closed look early.
func (w *Witness) Blind(after time.Duration) (end func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.blind++
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.blind--
		if until := time.Now().Add(after); until.After(w.blindUntil) {
			w.blindUntil = until
		}
	}
}

// AddTo adds what the witness has seen to a verdict. It returns the number of looks.
func (w *Witness) AddTo(v *Verdict) (looks int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.early > 0 {
		v.Early = max(v.Early, w.early)
		v.Violations = append(v.Violations, fmt.Sprintf("%d orders were seen closed before they were due", w.early))
	}
	return w.looks
}
