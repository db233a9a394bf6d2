package wire

import (
	"time"

	"github.com/orderclose/orderclose"
)

// MaxDelayLimit is the largest maximum delay that the configuration allows, about ten
// years. An order that was accepted once is given up only if its due time is further
// ahead than this. A smaller configured maximum applies to new orders only.
const MaxDelayLimit = 3660 * 24 * time.Hour

// BeyondLimit reports whether a due time that is so far ahead cannot be right:
// further than MaxDelayLimit plus MaxDelaySlack.
func BeyondLimit(ahead time.Duration) bool { return ahead > MaxDelayLimit+orderclose.MaxDelaySlack }
