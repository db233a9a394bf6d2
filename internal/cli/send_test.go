package cli

import (
	"strings"
	"testing"

	"github.com/orderclose/orderclose/internal/testkit/expect"
)

func TestBroker_SendRefusesADueTimeThatIsTooFar(t *testing.T) {
	r := newRig(t)
	r.cli("topics", "apply")
	out, stderr, code := r.cli("send", "--id", "c", "--due", "9998-12-31T00:00:00Z")
	expect.That(t, code == 5 && out == "" && strings.Contains(stderr, "it is due on 9998-12-31"), "exit %d, %q, %q", code, out, stderr)
	out, stderr, code = r.cli("send", "--id", "c", "--due", "9999-12-31T00:00:00Z")
	expect.That(t, code == 0 && strings.Join(strings.Fields(out), " ") == "c is never closed not sent", "exit %d, %q, %q", code, out, stderr)
	out, stderr, code = r.cli("send", "--id", "c")
	expect.That(t, code == 0 && strings.HasPrefix(out, "c "), "exit %d, %q, %q", code, out, stderr)
}
