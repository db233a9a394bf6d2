package store

import (
	"strings"
	"testing"
)

func TestJudgeOrder_FindsWhatClosingNeverLeaves(t *testing.T) {
	lines := map[string]int64{"ink": 3}
	type move struct {
		kind     kind
		quantity int64
	}
	ledger := func(rows ...move) (all []LedgerRow) {
		for _, r := range rows {
			all = append(all, LedgerRow{SKU: "ink", Kind: string(r.kind), Quantity: r.quantity})
		}
		return all
	}
	for what, c := range map[string]struct {
		o    stockOrder
		want string // the kinds found
	}{
		"unpaid":               {stockOrder{status: Unpaid, lines: lines}, ""},
		"paid":                 {stockOrder{status: Paid, lines: lines}, ""},
		"closed":               {stockOrder{status: Closed, lines: lines, ledger: ledger(move{kindClose, 3}), receipts: 1}, ""},
		"closed, a gift":       {stockOrder{status: Closed, lines: map[string]int64{"ink": 0}, receipts: 1}, ""},
		"closed, no lines":     {stockOrder{status: Closed, receipts: 1}, ""},
		"cancelled":            {stockOrder{status: Cancelled, lines: lines, ledger: ledger(move{kindCancel, 3})}, ""},
		"shipped":              {stockOrder{status: 4, lines: lines, ledger: ledger(move{"ship", 3})}, ""},
		"confirmed":            {stockOrder{status: 5, lines: lines, ledger: ledger(move{"ship", 3})}, ""},
		"a status of the shop": {stockOrder{status: 77, lines: lines, ledger: ledger(move{"eaten", 1})}, ""},
		"closed, no receipt":   {stockOrder{status: Closed, lines: lines, ledger: ledger(move{kindClose, 3})}, "receipt"},
		"paid, receipt":        {stockOrder{status: Paid, lines: lines, receipts: 1}, "receipt"},
		"two receipts":         {stockOrder{status: Closed, receipts: 2}, "receipt"},
		"closed, no row":       {stockOrder{status: Closed, lines: lines, receipts: 1}, "ledger"},
		"closed, less":         {stockOrder{status: Closed, lines: lines, ledger: ledger(move{kindClose, 2}), receipts: 1}, "ledger"},
		"closed as cancelled":  {stockOrder{status: Closed, lines: lines, ledger: ledger(move{kindCancel, 3}), receipts: 1}, "ledger"},
		"unpaid, released":     {stockOrder{status: Unpaid, lines: lines, ledger: ledger(move{kindClose, 3})}, "ledger"},
		"twice":                {stockOrder{status: Closed, lines: lines, ledger: ledger(move{kindClose, 3}, move{kindCancel, 3}), receipts: 1}, "twice"},
		"twice the same":       {stockOrder{status: Closed, lines: lines, ledger: ledger(move{kindClose, 3}, move{kindClose, 3}), receipts: 1}, "twice"},
		"a SKU it never held":  {stockOrder{status: Closed, ledger: ledger(move{kindClose, 3}), receipts: 1}, "ledger"},
		"several": {stockOrder{status: Closed, lines: map[string]int64{"ink": 3, "nib": 1}, ledger: ledger(move{kindClose, 1})},
			"receipt ledger ledger"},
		"shipped and returned": {stockOrder{status: 5, lines: lines, ledger: ledger(move{"ship", 3}, move{kindCancel, 3})}, "twice"},
	} {
		var kinds []string
		for _, f := range judgeOrder(c.o) {
			kinds = append(kinds, f.Kind)
			if f.What == "" || f.Fix == "" {
				t.Errorf("%s: %+v does not say what is and what to do", what, f)
			}
		}
		if got := strings.Join(kinds, " "); got != c.want {
			t.Errorf("%s: found %q, want %q", what, got, c.want)
		}
	}
}

func TestJudgeSKU(t *testing.T) {
	for row, want := range map[skuRow]int{{5, 3, 3}: 0, {0, 0, 0}: 0, {5, 3, 2}: 1, {5, 0, 2}: 1, {-1, 0, 0}: 1, {1, -1, 0}: 2} {
		if found := judgeSKU("ink", row); len(found) != want {
			t.Errorf("%+v: %+v, want %d findings", row, found, want)
		}
	}
}

func TestStockCheck_CountsMoreThanItNames(t *testing.T) {
	c := &stockCheck{}
	for range MaxStockFindings - 1 {
		c.find(StockFinding{})
	}
	if c.find(make([]StockFinding, 3)...); c.report.Found != MaxStockFindings+2 || len(c.report.Findings) != MaxStockFindings {
		t.Errorf("%d found, %d named", c.report.Found, len(c.report.Findings))
	}
}
