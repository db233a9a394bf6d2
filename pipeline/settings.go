package pipeline

import (
	"fmt"

	"github.com/orderclose/orderclose/internal/config"
)

// Secrets sign the requests to the services of the shop that topics.yaml names. Each secret has at
// least 16 bytes; "openssl rand -hex 32" makes one. A request has a signature by each secret of its
// list, and a service accepts any of them, so that a secret can be replaced without a moment in
// which requests are refused. Printing or logging Secrets
// hides them.
type Secrets struct {
	HTTP    []string `json:"-"` // for the service that closes orders; required by closer.kind: http
	Payment []string `json:"-"` // for the payment provider; required by closer.payment.url
}

// Format hides the secrets, for every verb.
func (s Secrets) Format(f fmt.State, _ rune) { fmt.Fprint(f, config.Secrets(s)) }

// Change is a setting of topics.yaml that a Reload has changed. Key is as in the file, such as
// buckets.10s; From and To are the values, "" if the key was added or removed. If Live is true, the
// change takes effect now, or after Options.RolloutDelay if it is one of the buckets; otherwise when the
// program starts again. String describes it in one line.
type Change = config.Change
