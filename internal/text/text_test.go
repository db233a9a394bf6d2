package text

import (
	"testing"

	"github.com/orderclose/orderclose/internal/testkit/expect"
)

func TestShellQuote_CanBePastedIntoAShell(t *testing.T) {
	for id, want := range map[string]string{"order-17": "order-17", "a b": "'a b'", "it's; rm": `'it'\''s; rm'`, "-x": "'-x'"} {
		expect.Equal(t, ShellQuote(id), want, "%q", id)
	}
}
