package schema

import (
	"context"
	"fmt"
	"strings"

	"github.com/orderclose/orderclose/internal/store/internal/db"
	"github.com/orderclose/orderclose/internal/store/mapping"
)

// Filled is a column that only orderclose writes, and how many orders of a sample of unpaid ones hold a value in it already.
type Filled struct {
	Key    string `json:"key"` // of the mapping: payment_id, set.COLUMN or set_paid.COLUMN
	Column string `json:"column"`
	Orders int64  `json:"orders"`
	Filled int64  `json:"filled"`
	Value  string `json:"value"` // one of the values
}

// Mostly reports whether most orders of the sample hold a value.
func (f Filled) Mostly() bool { return 2*f.Filled > f.Orders }

// manyValues is how many values the unpaid orders have, at least, in a column that holds what others write. A column that a close sets to a
// constant, such as a further status, has a few.
const manyValues = 6

// filled reads, in up to sampled unpaid orders of a table that orders.where does not exclude, the columns that only orderclose writes:
// the payment's id, and those that get a constant. A lock is of the shop too, and so is a time of the close, which may be that of the last change.
func (s *Checker) filled(ctx context.Context, t *db.Table) (found []Filled, err error) {
	m := s.Q.M
	var all []Filled
	var columns, numbers []string
	add := func(key, column, count string) {
		if column == "" {
			return
		}
		alias := fmt.Sprintf("oc_%d", len(all))
		all = append(all, Filled{Key: key, Column: column})
		columns = append(columns, mapping.Quote(column)+" AS "+alias)
		numbers = append(numbers, strings.ReplaceAll(count, "?", alias), "COALESCE(MIN(NULLIF(CONCAT("+alias+", ''), '')), '')")
	}
	add("payment_id", m.PaymentID, "COUNT(CASE WHEN ? <> '' THEN 1 END)")
	const many = "CASE WHEN COUNT(DISTINCT NULLIF(CONCAT(?, ''), '')) >= %d THEN COUNT(NULLIF(CONCAT(?, ''), '')) ELSE 0 END"
	for prefix, constants := range map[string][]mapping.ColumnValue{"set.": m.Set, "set_paid.": m.SetPaid} {
		for _, c := range constants {
			add(prefix+c.Column, c.Column, fmt.Sprintf(many, manyValues))
		}
	}
	if len(all) == 0 {
		return nil, nil
	}
	where := "TRUE"
	if s.Q.Where.SQL != "" {
		where = s.Q.Where.SQL
	}
	query := "SELECT COUNT(*), " + strings.Join(numbers, ", ") + " FROM (SELECT * FROM (SELECT " + strings.Join(columns, ", ") + ", CASE WHEN " + where +
		" THEN 1 ELSE 0 END AS oc_in FROM " + mapping.Quote(t.Name) + s.Q.D.Hint(m.DueIndex) + " WHERE " + mapping.Quote(m.Status.Column) +
		" IN ? LIMIT ?) AS oc_read WHERE oc_in = 1 LIMIT ?) AS oc_all"
	var orders int64
	into := []any{&orders}
	for i := range all {
		into = append(into, &all[i].Filled, &all[i].Value)
	}
	args := append(append([]any{}, s.Q.Where.Args...), m.Status.From.Args(), lookedAt, sampled)
	if err := s.Gorm.WithContext(ctx).Raw(query, args...).Row().Scan(into...); err != nil {
		return nil, err
	}
	for _, f := range all {
		if f.Orders = orders; f.Filled > 0 {
			found = append(found, f)
		}
	}
	return found, nil
}

// CheckFilled returns an error if most unpaid orders of a sample hold a value in a column that only orderclose writes, and the mapping does
// not accept that. It is for the start of a program before the first close.
func (s *Checker) CheckFilled(ctx context.Context) error {
	if !s.Mapped || !s.Dialect.TellsTables {
		return nil
	}
	in, err := s.AllTables(ctx)
	if err != nil || len(in) == 0 {
		return s.FailedTo(ctx, err, "read the tables of orders")
	}
	all, err := s.filled(ctx, in[0])
	if err != nil {
		return s.FailedTo(ctx, err, "read a sample of the orders")
	}
	var problems []mapping.Problem
	for _, f := range all {
		if f.Mostly() {
			problems = append(problems, f.Problem())
		}
	}
	if problems = s.Q.M.Unaccepted(problems); len(problems) > 0 {
		return s.Placed(problems)
	}
	return nil
}

// Problem says what is wrong.
func (f Filled) Problem() mapping.Problem {
	p := mapping.Problem{
		Path: f.Key, What: fmt.Sprintf("%d of %d unpaid orders have a value in %s already, such as %.40q", f.Filled, f.Orders, f.Column, f.Value),
		Why: "it is overwritten when the order ends", Fix: "map a column that only orderclose writes, or remove " + f.Key, Accept: mapping.FilledBefore,
	}
	if f.Key == "payment_id" {
		p.Why = "it counts as the payment that paid the order, so a callback of another id is a late payment, which is given back"
		p.Fix, p.Accept = "map a column that only RecordPayment writes, and that is NULL or empty until then", mapping.FilledPaymentID
	}
	return p
}

// Below is how many rows of a column of the stock are below zero, of those that were read.
type Below struct {
	Table  string `json:"table"`
	Column string `json:"column"`
	Rows   int64  `json:"rows"` // up to belowMost
}

// belowMost is how many rows below zero are counted, and belowRead how many rows are read for it.
const belowMost, belowRead = 100, 100_000

// belowZero counts the rows of the stock that are below zero. Such a number may mean that the stock has no limit.
func (s *Checker) belowZero(ctx context.Context) (found []Below, err error) {
	for _, stock := range s.Q.M.Stock {
		for _, column := range []string{stock.Available, stock.Reserved} {
			if column == "" {
				continue
			}
			n, err := db.ValueOf[int64](db.Own(s.Gorm.WithContext(ctx)), "SELECT COUNT(*) FROM (SELECT 1 FROM (SELECT "+mapping.Quote(column)+
				" AS oc_number FROM "+mapping.Quote(stock.Table)+" LIMIT ?) AS oc_read WHERE oc_number < 0 LIMIT ?) AS oc_all", belowRead, belowMost)
			if err != nil {
				return nil, err
			}
			if n > 0 {
				found = append(found, Below{stock.Table, column, n})
			}
		}
	}
	return found, nil
}
