package httpcall

import (
	"net/http"
	"testing"
	"time"

	"github.com/orderclose/orderclose/internal/testkit/must"
)

// FuzzVerify verifies headers of any text. Without the secret nothing is accepted.
func FuzzVerify(f *testing.F) {
	at, body := time.Unix(1772366700, 0), []byte(`{"orders":[]}`)
	secrets := []string{"a secret of the tests, one", "a secret of the tests, two"}
	stamp, signature := Sign(secrets, at, body)
	for _, seed := range [][2]string{{stamp, signature}, {stamp, "v1=,v1=00,v2=ff, " + signature}, {"+" + stamp, signature}, {"0" + stamp, signature},
		{"-9223372036854775808", "v1="}} {
		f.Add(seed[0], seed[1], body)
	}
	f.Fuzz(func(t *testing.T, stamp, signature string, body []byte) {
		h := http.Header{}
		h.Set(HeaderTimestamp, stamp)
		h.Set(HeaderSignature, signature)
		must.That(t, Verify([]string{"a secret that nobody has signed with"}, h, body, at) != nil, "accepted without the secret")
		_ = Verify(secrets, h, body, at)
		RetryAfter(signature, at)
	})
}
