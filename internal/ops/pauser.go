package ops

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/wire"
)

// maxReason is the longest reason of a pause, in characters.
const maxReason = 500

// ParsePause returns how long a pause lasts.
func ParsePause(lasting string) (time.Duration, error) {
	d, err := config.ParseDuration(lasting)
	switch {
	case lasting == "":
		err = errors.New("for is missing: say how long, such as 30m")
	case err != nil:
		err = fmt.Errorf("for: %w: write a number and a unit, such as 30m", err)
	default:
		err = CheckPause(d)
	}
	return d, err
}

// CheckPause checks how long a pause lasts.
func CheckPause(d time.Duration) error {
	if d <= 0 || d > wire.MaxPause {
		return fmt.Errorf("for is %v, want more than 0 and at most %v; pause again if it takes longer", d, wire.MaxPause)
	}
	return nil
}

// CheckReason checks the reason of a pause.
func CheckReason(reason string) error {
	if n := len([]rune(reason)); strings.TrimSpace(reason) == "" || n > maxReason {
		return fmt.Errorf("reason is missing or longer than %d characters: say why, for the others on call", maxReason)
	}
	return nil
}

// ErrNoPauses says that nothing can be paused here, and what to do instead. It wraps ErrNoDatabase.
var ErrNoPauses = fmt.Errorf("a pause is a row of the database, which is not named: %w; without a database let the service that closes the orders answer "+
	"paused or 503, or stop the closers and compensators", ErrNoDatabase)

// PausesDatabase returns the database that has the pauses, also those of orders that a service or a Store of the program closes. The
// error is ErrNoPauses.
func (p Pipeline) PausesDatabase() (*store.Store, error) {
	if p.Store == nil {
		return nil, ErrNoPauses
	}
	return p.Store, nil
}
