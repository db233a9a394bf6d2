package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/store"
)

func (c *common) doctorStock(ctx context.Context) error {
	s, err := c.open(config.EnvDSN)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.Store.Migrated(ctx); err != nil {
		return err
	}
	last := time.Now()
	report, err := s.Store.CheckStock(ctx, func(orders int) {
		if time.Since(last) >= lineEvery && !c.quiet {
			last = time.Now()
			fmt.Fprintf(c.env.Stderr, "checked %d orders\n", orders)
		}
	})
	if errors.Is(err, store.ErrOwnTables) {
		return Exit(Refused, fmt.Errorf("%w; docs/mapping.md says how to check yours", err))
	}
	if err != nil {
		return err
	}
	return cmp.Or(c.print(report, func(w io.Writer) { printStock(w, report) }),
		exitIf(report.Found > 0, Findings, "%d findings about the stock", report.Found))
}

func printStock(w io.Writer, r store.StockReport) {
	for _, f := range r.Findings {
		fmt.Fprintf(w, "%s\torder %s\tSKU %s\t%s\n", f.Kind, cmp.Or(oneLine(f.Order, 64), "-"), cmp.Or(oneLine(f.SKU, 64), "-"), oneLine(f.What, 200))
		fmt.Fprintf(w, "\t\t\t-> %s\n", f.Fix)
	}
	printAny(w, r.Found-len(r.Findings), "and %d more")
	fmt.Fprintf(w, "%d SKUs, %d orders, %d ledger rows and %d receipts were compared: ", r.SKUs, r.Orders, r.Ledger, r.Receipts)
	if r.Found == 0 {
		fmt.Fprintln(w, "no differences")
		return
	}
	fmt.Fprintf(w, "%d findings\n", r.Found)
}
