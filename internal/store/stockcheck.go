package store

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strings"

	"gorm.io/gorm"
)

// StockFinding is something in the database that closing, cancelling and shipping
// by this package never leave behind.
type StockFinding struct {
	Kind  string `json:"kind"` // a word for programs: reserved, available, no_sku, no_order, ledger, twice, receipt
	Order string `json:"order_id,omitempty"`
	SKU   string `json:"sku,omitempty"`
	What  string `json:"what"` // what is and what should be
	Mend  string `json:"mend"` // what a person can do
}

// StockReport is what CheckStock has seen.
type StockReport struct {
	SKUs     int            `json:"skus"`
	Orders   int            `json:"orders"`
	Ledger   int            `json:"ledger_rows"`
	Receipts int            `json:"receipts"`
	Found    int            `json:"found"`
	Findings []StockFinding `json:"findings"` // the first of them, at most MaxStockFindings
}

// MaxStockFindings is how many findings a StockReport names; all are counted.
const MaxStockFindings = 1000

const (
	// stockPage is how many orders are looked at together.
	stockPage = 500
	// skuPage is how many SKUs are summed up in memory at a time, some ten megabytes.
	// A shop that sells more has its orders read once for each so many.
	skuPage = 100_000
)

var snapshot = &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true}

// CheckStock compares the tables of the reference schema with one another, as they
// are at one moment: what each SKU has reserved is what unpaid and paid orders
// hold of it; each closed order has its receipt and has given back what it held,
// each cancelled one too, each shipped one has taken it out; nothing came back
// twice or without an order. It reads page by page in one transaction that locks
// nothing, and changes nothing. progress, if not nil, hears how many orders were
// looked at. The error wraps orderclose.ErrUnavailable if it is the database's, and
// ErrOwnTables where orders are mapped.
func (s *Store) CheckStock(ctx context.Context, progress func(orders int)) (StockReport, error) {
	if s.mapped {
		return StockReport{}, fmt.Errorf("check the stock: %w", ErrOwnTables)
	}
	c := &stockCheck{dialect: s.dialect, progress: progress, report: StockReport{Findings: []StockFinding{}}}
	err := s.gorm.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		c.tx = tx
		return c.run()
	}, s.dialect.snapshot())
	if err != nil {
		return c.report, fmt.Errorf("check the stock: %w", s.explain(ctx, err))
	}
	return c.report, nil
}

// snapshot are the options of a transaction in which everything is as it was when
// it began.
func (d Dialect) snapshot() *sql.TxOptions {
	if d.Name == SQLite { // always so
		return nil
	}
	return snapshot
}

// stockCheck is one run of CheckStock.
type stockCheck struct {
	tx       *gorm.DB
	dialect  Dialect
	progress func(orders int)
	report   StockReport
}

func (c *stockCheck) find(found ...StockFinding) {
	c.report.Found += len(found)
	c.report.Findings = append(c.report.Findings, found[:min(len(found), MaxStockFindings-len(c.report.Findings))]...)
}

// run goes through the SKUs, as many as fit into memory at a time, and through all
// orders for each.
func (c *stockCheck) run() error {
	after := ""
	for first := true; ; first = false {
		skus, err := c.skus(after)
		if err != nil {
			return fmt.Errorf("stock: %w", err)
		}
		if err := c.orders(skus, first); err != nil {
			return err
		}
		c.report.SKUs += len(skus.rows)
		for _, sku := range skus.sorted {
			c.find(judgeSKU(sku, *skus.rows[sku])...)
		}
		if skus.last {
			return nil
		}
		after = skus.to
	}
}

// skuRange is a page of SKUs, those in (from, to].
type skuRange struct {
	from, to string
	last     bool // there is none after it
	rows     map[string]*skuRow
	sorted   []string
}

// skuRow is what the stock has of a SKU, and what orders hold of it.
type skuRow struct{ available, reserved, held int64 }

// holds says whether a SKU belongs to the page, be it in the stock or not. Ids
// compare as bytes, here as there.
func (r skuRange) holds(sku string) bool { return sku > r.from && (r.last || sku <= r.to) }

func (c *stockCheck) skus(after string) (skuRange, error) {
	r := skuRange{from: after, rows: map[string]*skuRow{}}
	err := eachRow(c.tx, "SELECT sku_id, available, reserved FROM stock WHERE sku_id > ? ORDER BY sku_id LIMIT ?", []any{after, skuPage}, func(rows *sql.Rows) error {
		var sku string
		var row skuRow
		if err := rows.Scan(&sku, &row.available, &row.reserved); err != nil {
			return err
		}
		r.rows[sku], r.sorted, r.to = &row, append(r.sorted, sku), sku
		return nil
	})
	r.last = len(r.rows) < skuPage
	return r, err
}

// orders goes through all orders and sums up what they hold of the SKUs; the first
// time it judges them as well.
func (c *stockCheck) orders(skus skuRange, judge bool) error {
	after := ""
	for {
		p, err := c.page(after)
		if err != nil {
			return fmt.Errorf("orders after %q: %w", after, err)
		}
		if err := c.lines(p, skus, judge); err != nil {
			return fmt.Errorf("lines of orders after %q: %w", after, err)
		}
		if judge {
			if err := c.judgePage(p); err != nil {
				return fmt.Errorf("ledger and receipts of orders after %q: %w", after, err)
			}
		}
		if p.last {
			return nil
		}
		after = p.to
	}
}

// orderRange is a page of orders, those in (from, to].
type orderRange struct {
	from, to string
	last     bool
	rows     map[string]*stockOrder
	sorted   []string
}

// stockOrder is what the tables say of one order.
type stockOrder struct {
	id       string
	status   Status
	lines    map[string]int64  // by SKU
	ledger   map[string][]move // by SKU
	receipts int
}

// move is a row of the ledger.
type move struct {
	kind     kind
	quantity int64
}

func (c *stockCheck) page(after string) (orderRange, error) {
	p := orderRange{from: after, rows: map[string]*stockOrder{}}
	query := "SELECT id, status FROM orders" + c.dialect.hint("PRIMARY") + " WHERE id > ? ORDER BY id LIMIT ?"
	err := eachRow(c.tx, query, []any{after, stockPage}, func(rows *sql.Rows) error {
		o := &stockOrder{lines: map[string]int64{}, ledger: map[string][]move{}}
		if err := rows.Scan(&o.id, &o.status); err != nil {
			return err
		}
		p.rows[o.id], p.sorted, p.to = o, append(p.sorted, o.id), o.id
		return nil
	})
	p.last = len(p.rows) < stockPage
	return p, err
}

// within goes through the rows of a table that belong to orders of the page,
// whether those exist or not.
func (c *stockCheck) within(p orderRange, columns, table string, each func(*sql.Rows) error) error {
	query, args := "SELECT "+columns+" FROM "+table+" WHERE order_id > ?", []any{p.from}
	if !p.last {
		query, args = query+" AND order_id <= ?", append(args, p.to)
	}
	return eachRow(c.tx, query, args, each)
}

// lines sums up what the orders of the page hold of the SKUs.
func (c *stockCheck) lines(p orderRange, skus skuRange, judge bool) error {
	return c.within(p, "order_id, sku_id, quantity", "order_items", func(rows *sql.Rows) error {
		var id, sku string
		var quantity int64
		if err := rows.Scan(&id, &sku, &quantity); err != nil {
			return err
		}
		o := p.rows[id]
		if o == nil {
			if judge {
				c.find(noOrder(id, sku, "a line"))
			}
			return nil
		}
		o.lines[sku] += quantity
		if !holdsStock(o.status) || !skus.holds(sku) {
			return nil
		}
		if row := skus.rows[sku]; row != nil {
			row.held += quantity
			return nil
		}
		c.find(StockFinding{"no_sku", id, sku, fmt.Sprintf("the order holds %d of a SKU that is not in the stock", quantity),
			"insert the stock's row with what it has and with what orders hold reserved; until then the order cannot be closed"})
		return nil
	})
}

// judgePage judges the orders of a page.
func (c *stockCheck) judgePage(p orderRange) error {
	err := c.within(p, "order_id, sku_id, kind, quantity", "stock_ledger", func(rows *sql.Rows) error {
		var id, sku string
		var m move
		if err := rows.Scan(&id, &sku, &m.kind, &m.quantity); err != nil {
			return err
		}
		c.report.Ledger++
		if o := p.rows[id]; o != nil {
			o.ledger[sku] = append(o.ledger[sku], m)
		} else {
			c.find(noOrder(id, sku, fmt.Sprintf("a ledger row (%s, %d)", m.kind, m.quantity)))
		}
		return nil
	})
	if err != nil {
		return err
	}
	err = c.within(p, "order_id", "receipts", func(rows *sql.Rows) error {
		var id string
		if err := rows.Scan(&id); err != nil {
			return err
		}
		c.report.Receipts++
		if o := p.rows[id]; o != nil {
			o.receipts++
		} else {
			c.find(noOrder(id, "", "a receipt"))
		}
		return nil
	})
	for _, id := range p.sorted {
		c.find(judgeOrder(*p.rows[id])...)
	}
	if c.report.Orders += len(p.sorted); c.progress != nil {
		c.progress(c.report.Orders)
	}
	return err
}

func noOrder(id, sku, what string) StockFinding {
	return StockFinding{"no_order", id, sku, what + " without its order", "find out who deleted the order; delete this with it if that was meant"}
}

// holdsStock says whether the lines of an order of this status are reserved.
func holdsStock(st Status) bool { return st == Unpaid || st == Paid }

// ledgerKind is how the stock of an order of this status went: "" while it is
// reserved, or if only the shop knows the status.
func ledgerKind(st Status) kind {
	switch st {
	case Closed:
		return kindClose
	case Cancelled:
		return kindCancel
	case 4, 5: // shipped, confirmed
		return "ship"
	}
	return ""
}

// judgeSKU compares what is reserved of a SKU with what orders hold. Pure.
func judgeSKU(sku string, row skuRow) (found []StockFinding) {
	if row.available < 0 || row.reserved < 0 {
		found = append(found, StockFinding{"available", "", sku, fmt.Sprintf("%d are available and %d reserved, and neither can be below 0", row.available, row.reserved),
			"somebody writes to the stock past the shop's transactions: find out who, and count what there is"})
	}
	if row.reserved != row.held {
		found = append(found, StockFinding{"reserved", "", sku, fmt.Sprintf("%d are reserved and orders hold %d", row.reserved, row.held),
			fmt.Sprintf("look at the findings of its orders first; if they do not explain it, reserved is to be %d", row.held)})
	}
	return found
}

// judgeOrder compares what an order held with its ledger rows and its receipt.
// Pure.
func judgeOrder(o stockOrder) (found []StockFinding) {
	if want := o.status == Closed; want != (o.receipts > 0) || o.receipts > 1 {
		found = append(found, StockFinding{"receipt", o.id, "", fmt.Sprintf("its status is %d and it has %d receipts", o.status, o.receipts),
			"an order has a receipt just if it is closed (2): find out who wrote its status past the shop's transactions"})
	}
	went := ledgerKind(o.status)
	skus := map[string]bool{}
	for sku := range o.lines {
		skus[sku] = true
	}
	for sku := range o.ledger {
		skus[sku] = true
	}
	if !holdsStock(o.status) && went == "" {
		return found // a status of the shop's own
	}
	for _, sku := range slices.Sorted(maps.Keys(skus)) {
		if f, bad := judgeLine(o, sku, went); bad {
			found = append(found, f)
		}
	}
	return found
}

// judgeLine judges one SKU of an order, whose stock went in the way that its
// status says.
func judgeLine(o stockOrder, sku string, went kind) (StockFinding, bool) {
	moves, held := o.ledger[sku], o.lines[sku]
	rows := make([]string, len(moves))
	for i, m := range moves {
		rows[i] = fmt.Sprintf("%s %d", m.kind, m.quantity)
	}
	slices.Sort(rows)
	have := strings.Join(rows, ", ")
	finding := func(kind, what, mend string) (StockFinding, bool) {
		return StockFinding{kind, o.id, sku, what, mend}, true
	}
	switch {
	case went == "" && len(moves) == 0:
		return StockFinding{}, false
	case len(moves) > 1:
		return finding("twice", fmt.Sprintf("its status is %d, it held %d, and its stock moved more than once: %s", o.status, held, have),
			"take back what was too much from available, and delete that ledger row, in one transaction; see that the table has its primary key")
	case went == "":
		return finding("ledger", fmt.Sprintf("its status is %d, so that it holds its stock, and yet that moved: %s", o.status, have),
			"find out who set its status back; reserve its stock again and delete the ledger row, in one transaction")
	case len(moves) == 0:
		return finding("ledger", fmt.Sprintf("its status is %d, it held %d, and that never moved", o.status, held),
			fmt.Sprintf("take %d out of reserved (to available, unless shipped) and insert the ledger row (%s), in one transaction", held, went))
	case moves[0].kind != went || moves[0].quantity != held:
		return finding("ledger", fmt.Sprintf("its status is %d, it held %d, and its ledger row says: %s", o.status, held, have),
			fmt.Sprintf("want %s %d: move the difference and correct the row, in one transaction", went, held))
	}
	return StockFinding{}, false
}
