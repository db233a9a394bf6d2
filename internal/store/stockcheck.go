package store

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"gorm.io/gorm"
)

// StockFinding is an inconsistency that closes, cancellations and shipments by this package
// never leave behind.
type StockFinding struct {
	Kind  string `json:"kind"` // for programs: reserved, available, no_sku, no_order, ledger, twice, receipt
	Order string `json:"order_id,omitempty"`
	SKU   string `json:"sku,omitempty"`
	What  string `json:"what"` // what is and what should be
	Fix   string `json:"fix"`  // what a person can do
}

// StockReport is the result of CheckStock.
type StockReport struct {
	SKUs     int            `json:"skus"`
	Orders   int            `json:"orders"`
	Ledger   int            `json:"ledger_rows"`
	Receipts int            `json:"receipts"`
	Found    int            `json:"found"`
	Findings []StockFinding `json:"findings"` // the first MaxStockFindings
}

// MaxStockFindings bounds the findings in a StockReport; Found counts all.
const MaxStockFindings = 1000

// stockPage is how many orders one query reads.
const stockPage = 500

// CheckStock compares the tables of the reference schema with one another, as of one moment:
// the reserved quantity of each SKU is what unpaid and paid orders hold; each closed order has
// its receipt, and its stock was released, as for each cancelled order; the stock of each
// shipped order was removed; no stock was released twice or without an order. It reads page by
// page in one transaction, locks nothing, and changes nothing. It keeps each SKU that unpaid and paid
// orders hold in memory, some hundred bytes each. progress, if not nil, is called
// with the number of orders that were read. The error wraps orderclose.ErrUnavailable if the
// database failed, and ErrOwnTables where orders are mapped.
func (s *Store) CheckStock(ctx context.Context, progress func(orders int)) (StockReport, error) {
	if s.mapped {
		return StockReport{}, fmt.Errorf("check the stock: %w", ErrOwnTables)
	}
	c := &stockCheck{dialect: s.dialect, progress: progress, held: map[string]*holding{}, report: StockReport{Findings: []StockFinding{}}}
	err := s.gorm.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		c.tx = tx
		return c.run()
	}, s.dialect.snapshot)
	return c.report, s.failed(ctx, err, "check the stock")
}

// stockCheck is one run of CheckStock.
type stockCheck struct {
	tx       *gorm.DB
	dialect  Dialect
	progress func(orders int)
	held     map[string]*holding // what unpaid and paid orders hold, by SKU
	report   StockReport
}

func (c *stockCheck) find(found ...StockFinding) {
	c.report.Found += len(found)
	c.report.Findings = append(c.report.Findings, found[:min(len(found), MaxStockFindings-len(c.report.Findings))]...)
}

// run reads all orders and sums what they hold, and then compares the sums with the stock.
func (c *stockCheck) run() error {
	for p := (orderRange{}); !p.last; {
		var err error
		if p, err = c.page(p.to); err == nil {
			err = c.judgePage(p)
		}
		if err != nil {
			return fmt.Errorf("orders after %q: %w", p.from, err)
		}
	}
	err := eachRow(c.tx, "SELECT sku_id, available, reserved FROM stock ORDER BY sku_id", nil, func(rows *sql.Rows) error {
		var sku string
		var row skuRow
		if err := rows.Scan(&sku, &row.available, &row.reserved); err != nil {
			return err
		}
		c.report.SKUs++
		if h := c.held[sku]; h != nil {
			row.held = h.quantity
		}
		delete(c.held, sku)
		c.find(judgeSKU(sku, row)...)
		return nil
	})
	if err != nil {
		return fmt.Errorf("stock: %w", err)
	}
	for _, sku := range slices.Sorted(maps.Keys(c.held)) {
		c.find(StockFinding{"no_sku", c.held[sku].order, sku,
			fmt.Sprintf("this order, or several orders, hold %d of a SKU that the stock does not have", c.held[sku].quantity),
			"insert the SKU's row into the stock, with its available quantity and with the quantity that orders hold as reserved; " +
				"until then no order with it can be closed"})
	}
	return nil
}

// skuRow is the stock of a SKU, and the quantity that orders hold.
type skuRow struct{ available, reserved, held int64 }

// holding is what orders hold of a SKU.
type holding struct {
	quantity int64
	order    string // the first of them
}

// orderRange is a page of orders, the orders in (from, to].
type orderRange struct {
	from, to string
	last     bool
	rows     map[string]*stockOrder
	sorted   []string
}

// stockOrder is one order with its lines, ledger rows and receipts.
type stockOrder struct {
	id       string
	status   Status
	lines    map[string]int64 // by SKU
	ledger   []LedgerRow
	receipts int
}

func (c *stockCheck) page(after string) (orderRange, error) {
	p := orderRange{from: after, rows: map[string]*stockOrder{}}
	query := "SELECT id, status FROM orders" + c.dialect.hint("PRIMARY") + " WHERE id > ? ORDER BY id LIMIT ?"
	err := eachRow(c.tx, query, []any{after, stockPage}, func(rows *sql.Rows) error {
		o := &stockOrder{lines: map[string]int64{}}
		if err := rows.Scan(&o.id, &o.status); err != nil {
			return err
		}
		p.rows[o.id], p.sorted, p.to = o, append(p.sorted, o.id), o.id
		return nil
	})
	p.last = len(p.rows) < stockPage
	return p, err
}

// stockRow is a row of an order in one of the tables that a page is checked with.
type stockRow struct {
	LedgerRow
	order string
}

// within reads the rows of a table whose order ids are in the range of the page, whether the
// orders exist or not. kind and quantity are columns of the table or constants, as is sku.
func (c *stockCheck) within(p orderRange, table, sku, kind, quantity string) ([]stockRow, error) {
	query, args := fmt.Sprintf("SELECT order_id, %s, %s, %s FROM %s WHERE order_id > ?", sku, kind, quantity, table), []any{p.from}
	if !p.last {
		query, args = query+" AND order_id <= ?", append(args, p.to)
	}
	rows, err := readAll(c.tx, query, args, func(r *stockRow) []any { return []any{&r.order, &r.SKU, &r.Kind, &r.Quantity} })
	return rows, wrap(err, "%s", table)
}

// judgePage reads the lines, ledger rows and receipts of a page of orders, checks them, and adds what the
// orders hold to c.held.
func (c *stockCheck) judgePage(p orderRange) error {
	lines, err := c.within(p, "order_items", "sku_id", "''", "quantity")
	if err != nil {
		return err
	}
	for _, l := range lines {
		if o := p.rows[l.order]; o == nil {
			c.find(noOrder(l.order, l.SKU, "a line"))
		} else {
			c.hold(o, l)
		}
	}
	ledger, err := c.within(p, "stock_ledger", "sku_id", "kind", "quantity")
	if err != nil {
		return err
	}
	for _, l := range ledger {
		if o := p.rows[l.order]; o != nil {
			o.ledger = append(o.ledger, l.LedgerRow)
		} else {
			c.find(noOrder(l.order, l.SKU, fmt.Sprintf("a ledger row (%s, %d)", l.Kind, l.Quantity)))
		}
	}
	receipts, err := c.within(p, "receipts", "COALESCE(returned, '{}')", "''", "0")
	if err != nil {
		return err
	}
	for _, r := range receipts {
		returned, err := returnedRows(r.SKU, time.Time{}, "")
		if err != nil {
			return wrap(err, "receipt of order %q", r.order)
		}
		if c.report.Ledger += len(returned); p.rows[r.order] == nil {
			c.find(noOrder(r.order, "", "a receipt"))
			continue
		}
		p.rows[r.order].receipts++
		p.rows[r.order].ledger = append(p.rows[r.order].ledger, returned...)
	}
	c.report.Ledger, c.report.Receipts = c.report.Ledger+len(ledger), c.report.Receipts+len(receipts)
	for _, id := range p.sorted {
		c.find(judgeOrder(*p.rows[id])...)
	}
	if c.report.Orders += len(p.sorted); c.progress != nil {
		c.progress(c.report.Orders)
	}
	return nil
}

// hold adds a line to its order, and to c.held if the order holds its stock.
func (c *stockCheck) hold(o *stockOrder, l stockRow) {
	if o.lines[l.SKU] += l.Quantity; !o.status.HoldsStock() {
		return
	}
	if c.held[l.SKU] == nil {
		c.held[l.SKU] = &holding{order: o.id}
	}
	c.held[l.SKU].quantity += l.Quantity
}

func noOrder(id, sku, what string) StockFinding {
	return StockFinding{"no_order", id, sku, what + " without its order", "find out why the order was deleted; if that was intended, delete this row too"}
}

// ledgerKind returns the kind of ledger rows that an order of this status has. It is empty
// while the stock is reserved, and for a status that only the shop knows.
func ledgerKind(st Status) kind {
	switch st {
	case Closed:
		return kindClose
	case Cancelled:
		return kindCancel
	case Shipped, Confirmed:
		return kindShip
	}
	return ""
}

// judgeSKU compares the reserved quantity of a SKU with what orders hold. Pure.
func judgeSKU(sku string, row skuRow) (found []StockFinding) {
	if row.available < 0 || row.reserved < 0 {
		found = append(found, StockFinding{"available", "", sku, fmt.Sprintf("%d are available and %d reserved; neither may be below 0", row.available, row.reserved),
			"a program writes to the stock outside the shop's transactions: find the program, and count the stock"})
	}
	if row.reserved != row.held {
		found = append(found, StockFinding{"reserved", "", sku, fmt.Sprintf("%d are reserved and orders hold %d", row.reserved, row.held),
			fmt.Sprintf("resolve the findings of its orders first; if they do not explain the difference, set reserved to %d", row.held)})
	}
	return found
}

// judgeOrder compares the lines of an order with its ledger rows and its receipt. Pure.
func judgeOrder(o stockOrder) (found []StockFinding) {
	if want := o.status == Closed; want != (o.receipts > 0) || o.receipts > 1 {
		found = append(found, StockFinding{"receipt", o.id, "", fmt.Sprintf("the order has status %d and %d receipts", o.status, o.receipts),
			"an order has a receipt if and only if it is closed (2): find the program that wrote its status outside the shop's transactions"})
	}
	went := ledgerKind(o.status)
	if !o.status.HoldsStock() && went == "" {
		return found // a status of the shop's own
	}
	what := fmt.Sprintf("the order has status %d: ", o.status)
	if went == "" {
		what = fmt.Sprintf("the order has status %d and must hold its stock: ", o.status)
	}
	for _, f := range JudgeStock(o.lines, o.ledger, string(went)) {
		if f.Order, f.What = o.id, what+f.What; f.Kind == "ledger_double" {
			f.Kind = "twice"
		} else {
			f.Kind = "ledger"
		}
		found = append(found, f)
	}
	return found
}

// unlessChanged begins what to do about stock that moved otherwise than the lines say. It moved as the lines were then.
const unlessChanged = "if a program has changed or archived lines since then, change nothing, and let it compare the status; " +
	"otherwise (the ledger of a close is in the column returned of its receipt) "

// JudgeStock compares what an order held, by SKU, with the ledger rows of its stock. want is the kind
// of row that each SKU must have; empty if the order holds its stock, so that no row may exist. The
// findings are sorted by SKU, and have no order. Their kinds are ledger_missing, ledger_double (the
// stock moved more than once) and ledger_wrong. A row with the quantity 0 is of a close without this stock, and no finding. Pure.
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
		add := func(kind, what, fix string) { found = append(found, StockFinding{kind, "", sku, what, fix}) }
		switch {
		case len(rows) > 1:
			add("ledger_double", fmt.Sprintf("%d of %s moved more than once: %s", n, sku, have),
				"subtract the excess from available and delete its ledger row, in one transaction; check that the table has its primary key")
		case len(rows) == 1 && want == "":
			add("ledger_wrong", "the ledger has "+have,
				"find out why its status was set back; reserve its stock again and delete the ledger row, in one transaction")
		case len(rows) == 0 && want != "" && n != 0: // a gift holds nothing
			add("ledger_missing", fmt.Sprintf("%d of %s never moved; the ledger should have %s", n, sku, should),
				fmt.Sprintf(unlessChanged+"subtract %d from reserved (add it to available, unless shipped) and insert the ledger row (%s), in one transaction", n, want))
		case len(rows) == 1 && rows[0].Kind == want && rows[0].Quantity == 0: // a close without this stock //mutant:without-stock-lost
		case len(rows) == 1 && (rows[0].Kind != want || rows[0].Quantity != n):
			add("ledger_wrong", fmt.Sprintf("the ledger has %s, and should have %s", have, should),
				fmt.Sprintf(unlessChanged+"the row should be %s %d: move the difference and correct the row, in one transaction", want, n))
		}
	}
	return found
}
