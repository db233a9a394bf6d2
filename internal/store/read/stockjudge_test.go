package read

import (
	"strings"
	"testing"

	"github.com/orderclose/orderclose/internal/testkit/expect"
)

func TestJudgeStock_FindsWhatClosingNeverLeaves(t *testing.T) {
	ink := map[string]int64{"ink": 3}
	row := func(sku, kind string, quantity int64) LedgerRow {
		return LedgerRow{SKU: sku, Kind: kind, Quantity: quantity}
	}
	for what, c := range map[string]struct {
		held   map[string]int64
		ledger []LedgerRow
		want   string // the kind of row that each SKU must have
		found  string
	}{
		"open":                  {ink, nil, "", ""},
		"closed":                {ink, []LedgerRow{row("ink", "close", 3)}, "close", ""},
		"closed, a gift":        {map[string]int64{"ink": 0}, nil, "close", ""},
		"closed, no lines":      {nil, nil, "close", ""},
		"closed, no row":        {ink, nil, "close", "ledger_missing ink"},
		"closed, less":          {ink, []LedgerRow{row("ink", "close", 2)}, "close", "ledger_wrong ink"},
		"closed as cancelled":   {ink, []LedgerRow{row("ink", "cancel", 3)}, "close", "ledger_wrong ink"},
		"open, and released":    {ink, []LedgerRow{row("ink", "close", 3)}, "", "ledger_wrong ink"},
		"closed and cancelled":  {ink, []LedgerRow{row("ink", "close", 3), row("ink", "cancel", 3)}, "close", "ledger_double ink"},
		"closed twice":          {ink, []LedgerRow{row("ink", "close", 3), row("ink", "close", 3)}, "close", "ledger_double ink"},
		"a SKU it never held":   {nil, []LedgerRow{row("ink", "close", 3)}, "close", "ledger_wrong ink"},
		"several, in one order": {map[string]int64{"nib": 1, "ink": 3}, []LedgerRow{row("ink", "close", 1)}, "close", "ledger_wrong ink ledger_missing nib"},
	} {
		var kinds []string
		for _, f := range JudgeStock(c.held, c.ledger, c.want) {
			kinds = append(kinds, f.Kind, f.SKU)
			expect.That(t, f.What != "" && f.Fix != "", "%s: %+v does not say what is and what to do", what, f)
		}
		expect.Equal(t, strings.Join(kinds, " "), c.found, "%s: found", what)
	}
}
