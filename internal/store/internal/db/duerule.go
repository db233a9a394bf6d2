package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"gorm.io/gorm"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store/mapping"
)

// ErrDelays says that the delays of topics.yaml are not those that the table order_delays has. Then no order is closed.
var ErrDelays = errors.New("the delays of this process are not those in the table order_delays")

// neverMicros is the delay in order_delays of an order that is never due.
const neverMicros = -1

// dueByRule makes the due time of an order the time of creation and the delay that was in force then, in unix microseconds, and NULL for
// an order that is never due. The columns have the name of the table of orders, since our tables may have columns of the same name.
func (q *statements) dueByRule() {
	q.Due = codecOf(&mapping.TimeColumn{Type: mapping.UnixMicros})
	q.DueOf = func(orders string) string { return "(" + q.createdMicros(orders) + " + " + q.delayOf(orders) + ")" }
	q.dueWith = func(orders string, d delay) string {
		return fmt.Sprintf("%s + %d", q.createdMicros(orders), d.Microseconds())
	}
}

// delayOf writes the expression of an order's delay in microseconds: the one of the order's category that was in force when
// the order was created, else the one of orders without category.
//
// The subquery names the id because MariaDB caches its result for the columns of the order that it names. The cache compares them by their
// collation, so an order of the category Virtual would get the delay of virtual.
func (q *statements) delayOf(orders string) string {
	of := "= ''"
	if q.M.Category != "" {
		of = "IN (" + fmt.Sprintf(q.D.BytesSQL, mapping.Quote(orders+"."+q.M.Category)) + ", '')"
	}
	return fmt.Sprintf("(SELECT NULLIF(oc_d.delay_us, %[2]d) FROM order_delays AS oc_d"+
		" WHERE oc_d.pipeline = %[3]s AND oc_d.category %[4]s AND oc_d.since_us <= %[5]s AND %[1]s <> ''"+
		" ORDER BY CASE WHEN oc_d.category = '' THEN 1 ELSE 0 END, oc_d.since_us DESC LIMIT 1)",
		fmt.Sprintf(q.D.TextSQL, q.M.ID.Read(orders+"."+q.M.ID.Column)), neverMicros, q.D.Literal(q.pipeline), of, q.createdMicros(orders))
}

// createdMicros writes the expression of the time of creation in unix microseconds; NULL: it is not a point in time.
func (q *statements) createdMicros(orders string) string {
	column := mapping.Quote(orders + "." + q.M.Due.Column)
	switch q.M.Due.Type {
	case mapping.UnixSeconds, mapping.UnixMillis:
		return fmt.Sprintf("(CASE WHEN %[1]s > 0 THEN %[1]s * CAST(%d AS %s) END)", column, q.column.Step().Microseconds(), q.D.Bigint)
	}
	_, offset := time.Now().In(q.column.Zone()).Zone() // Check allows no zone whose clocks change
	return fmt.Sprintf("(%s - %d)", fmt.Sprintf(q.D.MicrosSQL, column), (time.Duration(offset) * time.Second).Microseconds())
}

// literals writes a list of texts.
func (d Dialect) literals(texts []string) string {
	all := make([]string, len(texts))
	for i, text := range texts {
		all[i] = d.Literal(text)
	}
	return strings.Join(all, ", ")
}

// delay is a delay that orders can have, and which orders may have it.
type delay struct {
	time.Duration
	others bool // orders may have other delays
	// only lists the categories of orders with the delay, and without those of orders that cannot have it. nil: not known.
	only, without []string
}

// columnDelays are the delays without Mapping.ByRule: the due time is in a column.
var columnDelays = []delay{{}}

// Delays returns the delays that orders can have: a page has a range of the index for each.
func (s *Handle) Delays(tx *gorm.DB) ([]delay, error) {
	if !s.Q.M.ByRule {
		return columnDelays, nil
	}
	all := map[int64][]string{} // categories by delay
	var first []string          // categories whose orders never have the delay of the category ''
	err := EachRow(tx, "SELECT category, since_us, delay_us FROM order_delays WHERE pipeline = ?", []any{s.Q.pipeline}, func(rows *sql.Rows) error {
		var category string
		var since, micros int64
		err := rows.Scan(&category, &since, &micros)
		if all[micros] = append(all[micros], category); since == 0 {
			first = append(first, category)
		}
		return err
	})
	if err == nil && len(first) == 0 {
		err = fmt.Errorf("%w: it has none: run orderclose migrate", ErrDelays)
	}
	var delays []delay
	for _, micros := range slices.Sorted(maps.Keys(all)) {
		d := delay{Duration: time.Duration(micros) * time.Microsecond, others: len(all) > 1}
		switch of := all[micros]; {
		case micros == neverMicros:
			continue
		case s.Q.M.Category == "":
		case !slices.Contains(of, ""):
			d.only = of
		default:
			d.without = slices.DeleteFunc(slices.Clone(first), func(c string) bool { return slices.Contains(of, c) })
		}
		delays = append(delays, d)
	}
	if len(delays) == 0 {
		delays = []delay{{others: true}} // no order is ever due
	}
	return delays, err
}

// mayHave writes the condition of orders that have the delay. That on the category saves most rows the subqueries of delayOf.
func (q *statements) mayHave(orders string, d delay) (where string) {
	if !d.others {
		return ""
	}
	for in, categories := range map[string][]string{"IN": d.only, "NOT IN": d.without} {
		if len(categories) > 0 {
			where += fmt.Sprintf(" AND COALESCE(%s, '') %s (%s)", fmt.Sprintf(q.D.BytesSQL, mapping.Quote(orders+"."+q.M.Category)), in, q.D.literals(categories))
		}
	}
	return where + fmt.Sprintf(" AND %s = %d", q.delayOf(orders), d.Microseconds())
}

// UseDelays makes d the delays with which CheckDelays compares the table order_delays, and which RecordDelays writes.
func (s *Handle) UseDelays(d orderclose.Delays) {
	s.given.Store(new(micros(d)))
}

// micros returns the delays of the categories in microseconds. The category "" stands for all other orders.
func micros(d orderclose.Delays) map[string]int64 {
	of := func(categories ...string) int64 {
		deadline := d.For(orderclose.Facts{CreatedAt: time.Unix(0, 0), Categories: categories})
		if deadline.Never {
			return neverMicros
		}
		return deadline.Due.UnixMicro()
	}
	all := map[string]int64{"": of()}
	for category := range d.ByCategory {
		all[category] = of(category)
	}
	return all
}

// CheckDelays returns an error that wraps ErrDelays if the mapping has due times by rule, and the table order_delays does not have the
// delays of UseDelays as the newest ones.
func (s *Handle) CheckDelays(ctx context.Context) error {
	err := s.CheckDelaysIn(s.Gorm.WithContext(ctx))
	if errors.Is(err, ErrDelays) {
		return err
	}
	return s.FailedTo(ctx, err, "read the delays")
}

func (s *Handle) CheckDelaysIn(tx *gorm.DB) error {
	if !s.Q.M.ByRule {
		return nil
	}
	given, written := *s.given.Load(), map[string]int64{}
	err := EachRow(tx, "SELECT category, delay_us FROM order_delays WHERE pipeline = ? ORDER BY category, since_us",
		[]any{s.Q.pipeline}, func(rows *sql.Rows) error {
			var category string
			var delay int64
			err := rows.Scan(&category, &delay)
			written[category] = delay
			return err
		})
	if err != nil {
		return err
	}
	all := maps.Clone(given)
	maps.Copy(all, written)
	for _, category := range slices.Sorted(maps.Keys(all)) {
		has, known := written[category]
		wants, listed := given[category]
		if !listed {
			wants = given[""]
		}
		if !known || has != wants {
			return fmt.Errorf("%w: category %q has %s in the table, and %s here; run orderclose migrate with the newest topics.yaml, and give it to each process",
				ErrDelays, category, inWords(has, known), inWords(wants, true))
		}
	}
	return nil
}

func inWords(micros int64, known bool) string {
	switch {
	case !known:
		return "no delay"
	case micros == neverMicros:
		return "never"
	}
	return (time.Duration(micros) * time.Microsecond).String()
}

// RecordDelays writes the delays of UseDelays into the table order_delays where they differ from the newest ones there. They hold for
// orders that are created from now on; the first ones hold for all orders. Only a person should call it: a process with an
// old file would write old delays.
func (s *Handle) RecordDelays(ctx context.Context) error {
	if err := s.CheckDelays(ctx); !errors.Is(err, ErrDelays) {
		return err
	}
	query := s.Dialect.recordDelays(s.Q.pipeline, *s.given.Load())
	err := s.Transact(ctx, func(tx *gorm.DB) error { return tx.Exec(query).Error })
	if err == nil {
		err = s.KeepOld(ctx)
	}
	return Wrap(err, "write the delays")
}

// WriteDelays writes the statement of RecordDelays as SQL of MySQL or PostgreSQL.
func WriteDelays(w io.Writer, d DialectName, pipeline string, delays orderclose.Delays) error {
	_, err := fmt.Fprintf(w, "-- The delays of topics.yaml, where they have changed.\n%s;\n", ServerDialects[d].recordDelays(pipeline, micros(delays)))
	return err
}

// recordDelays returns the INSERT of the delays that differ from the newest ones. A category that is not listed any more gets the
// delay of orders without category.
func (d Dialect) recordDelays(pipeline string, delays map[string]int64) string {
	p, now := d.Literal(pipeline), d.Literal(d.Millis())
	categories := slices.Sorted(maps.Keys(delays))
	var values []string
	for _, category := range categories {
		values = append(values, fmt.Sprintf("SELECT %s AS category, %d AS delay_us", d.Literal(category), delays[category]))
	}
	return fmt.Sprintf("INSERT INTO order_delays (pipeline, category, since_us, delay_us)\n"+
		"SELECT %[1]s, v.category, CASE WHEN EXISTS (SELECT 1 FROM order_delays AS oc_a WHERE oc_a.pipeline = %[1]s) THEN %[2]s * 1000 ELSE 0 END, v.delay_us\n"+
		"FROM (%[3]s\n  UNION SELECT oc_b.category, %[4]d FROM order_delays AS oc_b WHERE oc_b.pipeline = %[1]s AND oc_b.category NOT IN (%[5]s)) AS v\n"+
		"WHERE NOT EXISTS (SELECT 1 FROM order_delays AS o WHERE o.pipeline = %[1]s AND o.category = v.category AND o.delay_us = v.delay_us\n"+
		"  AND o.since_us = (SELECT MAX(n.since_us) FROM order_delays AS n WHERE n.pipeline = o.pipeline AND n.category = o.category))",
		p, now, strings.Join(values, "\n  UNION ALL "), delays[""], d.literals(categories))
}
