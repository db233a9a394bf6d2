package text

import (
	"strings"
	"testing"

	"github.com/orderclose/orderclose/internal/testkit/expect"
)

func TestShellQuote_CanBePastedIntoAShell(t *testing.T) {
	for id, want := range map[string]string{"order-17": "order-17", "a b": "'a b'", "it's; rm": `'it'\''s; rm'`, "-x": "'-x'"} {
		expect.Equal(t, ShellQuote(id), want, "%q", id)
	}
}

func TestOneLine_EscapesWhatWouldHideOrReorderText(t *testing.T) {
	for in, want := range map[string]string{
		"order-17": "order-17", "订单": "订单", `a"b'c\d<e>`: `a"b'c\d<e>`, "a\u202eb": `a\u202eb`, "a\x00\n": `a\u0000\n`, "a\u200bb": `a\u200bb`,
		"\x1b[31m\u009b1m\x7f\r\t": `\u001b[31m\u009b1m\u007f\u000d\u0009`, "a\u2028b": `a\u2028b`, "\U000e0041": `\udb40\udc41`,
		"\xff": "\ufffd", "a\u3000b": "a\u3000b", strings.Repeat("订", 50): strings.Repeat("订", 39) + "…",
	} {
		expect.Equal(t, OneLine(in, 40), want, "%q", in)
	}
	expect.Equal(t, Harmless("a\n\tb\x1b"), "a\n\tb\\u001b", "a text of lines")
}
