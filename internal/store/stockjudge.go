package store

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// StockFinding is a difference between the lines of an order and the stock that moved.
type StockFinding struct {
	Kind string // ledger_missing, ledger_double: the stock moved more than once, or ledger_wrong
	SKU  string
	What string // what is and what should be
	Fix  string // what a person can do
}

// unlessChanged begins what to do about stock that moved otherwise than the lines say. It moved as the lines were then.
const unlessChanged = "if a program has changed or archived lines since then, change nothing, and let it compare the status; " +
	"otherwise (the ledger of a close is in the column returned of its receipt) "

// JudgeStock compares what an order held, by SKU, with the ledger rows of its stock. want is the kind
// of row that each SKU must have; empty if the order holds its stock, so that no row may exist. The
// findings are sorted by SKU. Pure.
func JudgeStock(held map[string]int64, ledger []LedgerRow, want string) (found []StockFinding) {
	moves := map[string][]LedgerRow{}
	for sku := range held {
		moves[sku] = nil
	}
	for _, l := range ledger {
		moves[l.SKU] = append(moves[l.SKU], l)
	}
	for _, sku := range slices.Sorted(maps.Keys(moves)) {
		rows, n := moves[sku], held[sku]
		written := make([]string, len(rows))
		for i, l := range rows {
			written[i] = fmt.Sprintf("%s %d of %s", l.Kind, l.Quantity, l.SKU)
		}
		slices.Sort(written)
		have, should := strings.Join(written, ", "), fmt.Sprintf("%s %d of %s", want, n, sku)
		add := func(kind, what, fix string) { found = append(found, StockFinding{kind, sku, what, fix}) }
		switch {
		case len(rows) > 1:
			add("ledger_double", fmt.Sprintf("%d of %s moved more than once: %s", n, sku, have),
				"subtract the excess from available and delete its ledger row, in one transaction; check that the table has its primary key")
		case len(rows) == 1 && want == "":
			add("ledger_wrong", "the ledger has "+have,
				"find out why its status was set back; reserve its stock again and delete the ledger row, in one transaction")
		case len(rows) == 0 && want != "" && n != 0: // a gift holds nothing
			add("ledger_missing", fmt.Sprintf("%d of %s never moved; the ledger should have %s", n, sku, should),
				fmt.Sprintf(unlessChanged+"subtract %d from reserved, add it to available, and insert the ledger row (%s), in one transaction", n, want))
		case len(rows) == 1 && (rows[0].Kind != want || rows[0].Quantity != n):
			add("ledger_wrong", fmt.Sprintf("the ledger has %s, and should have %s", have, should),
				fmt.Sprintf(unlessChanged+"the row should be %s %d: move the difference and correct the row, in one transaction", want, n))
		}
	}
	return found
}
