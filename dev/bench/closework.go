package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/orderclose/orderclose/internal/testkit/measure"
)

// statistics are the queries by which a server says what it did. Only bench close with PROFILE=1 asks them,
// because the statistics cost some speed.
type statistics struct {
	enable []string // "" if the server was started with them
	reset  string
	// statements returns for each kind of statement: its text, calls, milliseconds, rows read, rows changed, and
	// bytes of log; 0 if the server does not count them.
	statements string
	counters   string // a name and a value each
	log, syncs string // the names of the counters
}

var statisticsOf = map[string]statistics{
	"mariadb": {
		reset: "TRUNCATE TABLE performance_schema.events_statements_summary_by_digest",
		statements: "SELECT DIGEST_TEXT, COUNT_STAR, SUM_TIMER_WAIT / 1e9, SUM_ROWS_EXAMINED, SUM_ROWS_AFFECTED, 0" +
			" FROM performance_schema.events_statements_summary_by_digest WHERE SCHEMA_NAME = DATABASE()",
		counters: "SHOW GLOBAL STATUS WHERE Variable_name IN ('Innodb_os_log_written', 'Innodb_data_fsyncs')",
		log:      "Innodb_os_log_written", syncs: "Innodb_data_fsyncs",
	},
	"postgresql": {
		enable: []string{"CREATE EXTENSION IF NOT EXISTS pg_stat_statements"},
		reset:  "SELECT pg_stat_statements_reset()",
		statements: "SELECT query, calls, total_exec_time, 0, rows, wal_bytes FROM pg_stat_statements" +
			" WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())",
		counters: "SELECT 'bytes', wal_bytes FROM pg_stat_wal UNION ALL SELECT 'syncs', wal_sync FROM pg_stat_wal",
		log:      "bytes", syncs: "syncs",
	},
}

// statementWork is what one kind of statement costs, for each 1,000 orders.
type statementWork struct {
	Calls, Millis measure.Number
	Read          measure.Number // PostgreSQL does not count it
	Changed       measure.Number // of a SELECT on PostgreSQL: returned
	Log           measure.Number // MariaDB does not count it
	Text          string
}

// parameters are PostgreSQL's; lists are those of values, whose lengths differ between statements of one kind.
var (
	parameters = regexp.MustCompile(`\$\d+`)
	lists      = regexp.MustCompile(`\((?: ?\? ?,?)+\)|\.\.\. UNION ALL SELECT \?, .*\.\.\. \)|\(\.\.\.\)(?: /\* , \.\.\. \*/)?`)
	repeated   = regexp.MustCompile(`\(…\)(?:, \(…\))+`)
)

// add counts a row of the server's statistics to its kind.
func (w *closeWork) add(one statementWork) {
	text := parameters.ReplaceAllString(strings.Join(strings.Fields(one.Text), " "), "?")
	one.Text = repeated.ReplaceAllString(lists.ReplaceAllString(text, "(…)"), "(…)")
	w.Calls += one.Calls
	i := slices.IndexFunc(w.Statements, func(other statementWork) bool { return other.Text == one.Text })
	if i < 0 {
		w.Statements = append(w.Statements, one)
		return
	}
	sum := &w.Statements[i]
	sum.Calls, sum.Millis, sum.Read, sum.Changed, sum.Log = sum.Calls+one.Calls, sum.Millis+one.Millis, sum.Read+one.Read, sum.Changed+one.Changed, sum.Log+one.Log
}

// closeWork is what the database did while a crew closed orders. All but the rate is for each 1,000 orders.
type closeWork struct {
	RPS        measure.Number  `json:"orders_per_second"`
	Calls      measure.Number  `json:"statements"`
	Log        measure.Number  `json:"log_bytes"`
	Syncs      measure.Number  `json:"syncs"`
	Statements []statementWork `json:"-"` // the table on stderr has them
}

// profileClose is bench close with PROFILE=1. It prints what closing costs the database.
func profileClose(ctx context.Context, pl plan) error {
	type result struct {
		Batches  closeWork `json:"batches"`
		OneByOne closeWork `json:"one_by_one"`
	}
	return compare(ctx, func(r *result) map[string]measure.Number {
		return map[string]measure.Number{"one by one": r.OneByOne.RPS, "batches": r.Batches.RPS}
	}, func(_ *result, s *shop) error {
		if err := s.exec(ctx, statisticsOf[s.on.name].enable...); err != nil {
			return fmt.Errorf("statistics: %w; start the server with them, as run.sh does", err)
		}
		_, err := s.turn(ctx, "warming up", inBatch, overdue(pl.closeOrders/4, manySKUs, 0))
		return err
	}, func(r *result, s *shop) (err error) {
		r.Batches, err = s.work(ctx, "batches of 500, 2 workers", inBatch, overdue(pl.closeOrders, manySKUs, 0))
		return err
	}, func(r *result, s *shop) (err error) {
		r.OneByOne, err = s.work(ctx, "one by one, 8 workers", oneByOne, overdue(pl.closeSlow, manySKUs, 0))
		return err
	})
}

// work lets a crew close a lot, and returns what the database did meanwhile.
func (s *shop) work(ctx context.Context, what string, c crew, l lot) (closeWork, error) {
	if err := s.fill(ctx, l); err != nil {
		return closeWork{}, err
	}
	by := statisticsOf[s.on.name]
	before, err := s.counters(ctx, by.counters)
	if err := errors.Join(err, s.exec(ctx, by.reset)); err != nil {
		return closeWork{}, err
	}
	t, err := s.closeLot(ctx, c, l.orders)
	if err != nil {
		return closeWork{}, err
	}
	perThousand := measure.Number(l.orders) / 1000
	w := closeWork{RPS: measure.Number(t.rps)}
	rows, err := s.db.QueryContext(ctx, by.statements)
	if err != nil {
		return closeWork{}, err
	}
	defer rows.Close()
	for rows.Next() {
		var one statementWork
		var text sql.NullString
		if err := rows.Scan(&text, &one.Calls, &one.Millis, &one.Read, &one.Changed, &one.Log); err != nil {
			return closeWork{}, err
		}
		if text.String == "" || strings.Contains(text.String, "performance_schema") || strings.Contains(text.String, "pg_stat") {
			continue
		}
		for _, n := range []*measure.Number{&one.Calls, &one.Millis, &one.Read, &one.Changed, &one.Log} {
			*n /= perThousand
		}
		one.Text = text.String
		w.add(one)
	}
	after, err := s.counters(ctx, by.counters)
	if err := errors.Join(rows.Err(), err, s.sumsOK(ctx, l)); err != nil {
		return closeWork{}, err
	}
	w.Log, w.Syncs = (after[by.log]-before[by.log])/perThousand, (after[by.syncs]-before[by.syncs])/perThousand
	slices.SortFunc(w.Statements, func(a, b statementWork) int { return cmp.Compare(b.Millis, a.Millis) })
	fmt.Fprintf(os.Stderr, "%s, %s: for 1,000 orders %.0f statements, %.0f bytes of log, %.1f syncs\n", s.on.name, what, w.Calls, w.Log, w.Syncs)
	for _, one := range w.Statements {
		if one.Calls < 1 { // of a new connection
			continue
		}
		fmt.Fprintf(os.Stderr, "%9.2f ms %8.1f calls %8.0f read %8.0f changed %9.0f bytes  %.110s\n", one.Millis, one.Calls, one.Read, one.Changed, one.Log, one.Text)
	}
	return w, nil
}

// counters returns counters of the server.
func (s *shop) counters(ctx context.Context, query string) (map[string]measure.Number, error) {
	rows, err := s.db.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	found := map[string]measure.Number{}
	for rows.Next() {
		var name string
		var value measure.Number
		if err := rows.Scan(&name, &value); err != nil {
			return nil, err
		}
		found[name] = value
	}
	return found, rows.Err()
}
