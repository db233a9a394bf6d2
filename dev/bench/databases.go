package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"

	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/testkit/measure"
	"github.com/orderclose/orderclose/producer"
)

// database is a server that the shop's benches run on, with the few statements in which it differs.
type database struct {
	name     string
	variable string           // of the environment, with its DSN
	outbox   producer.Dialect // of the shop's statements
	settings string           // reads a name and a value, LIKE a name
	durable  [][2]string      // settings without which a commit is lost with the machine
	analyze  string
	copyOf   string     // creates an empty outbox_full like outbox_schedules
	swap     string     // puts outbox_full in the place of outbox_schedules
	later    string     // the time that is some milliseconds after now; %s: the milliseconds
	reads    string     // counts the rows of indexes and tables that were read
	also     []database // that only payments are measured on
	flush    string     // makes a session's reads count; "": they do
}

// databases are the sides of the comparison.
var databases = []database{
	{
		name: "mariadb", variable: environ.EnvDSN, outbox: producer.MySQL,
		settings: "SHOW GLOBAL VARIABLES LIKE '%s'",
		durable:  [][2]string{{"innodb_flush_log_at_trx_commit", "1"}, {"innodb_doublewrite", "ON"}},
		analyze:  "ANALYZE TABLE orders, order_items, stock",
		copyOf:   "CREATE TABLE outbox_full LIKE outbox_schedules",
		swap:     "RENAME TABLE outbox_schedules TO outbox_empty, outbox_full TO outbox_schedules",
		later:    "UTC_TIMESTAMP(3) + INTERVAL (%s) * 1000 MICROSECOND",
		reads: "SHOW SESSION STATUS WHERE Variable_name IN" +
			" ('Handler_read_key', 'Handler_read_next', 'Handler_read_prev', 'Handler_read_first', 'Handler_read_rnd_next')",
		also: []database{{
			name: "mysql", variable: "ORDERCLOSE_MYSQL_DSN", settings: "SHOW GLOBAL VARIABLES LIKE '%s'",
			durable: [][2]string{{"innodb_flush_log_at_trx_commit", "1"}, {"innodb_doublewrite", "ON"}},
			analyze: "ANALYZE TABLE orders, order_items, stock",
		}},
	},
	{
		name: "postgresql", variable: "ORDERCLOSE_POSTGRES_DSN", outbox: producer.Postgres,
		settings: "SELECT name, setting FROM pg_settings WHERE name LIKE '%s'",
		durable:  [][2]string{{"fsync", "on"}, {"synchronous_commit", "on"}, {"full_page_writes", "on"}},
		analyze:  "ANALYZE orders, order_items, stock",
		copyOf:   "CREATE TABLE outbox_full (LIKE outbox_schedules INCLUDING ALL)",
		swap:     "ALTER TABLE outbox_schedules RENAME TO outbox_empty; ALTER TABLE outbox_full RENAME TO outbox_schedules", // one transaction
		later:    "statement_timestamp() + (%s) * INTERVAL '1 millisecond'",
		reads: "SELECT relname, seq_tup_read FROM pg_stat_user_tables WHERE relname = 'orders' UNION ALL" +
			" SELECT indexrelname, idx_tup_read FROM pg_stat_user_indexes WHERE relname = 'orders'",
		flush: "SELECT pg_stat_force_next_flush()", // from PostgreSQL 15 on
	},
}

// local finds the address in the DSN of a server of this machine.
var local = regexp.MustCompile(`[@(]((?:127\.0\.0\.1|localhost):\d+)`)

// server returns the DSN of the server that the environment names, which must be on this machine.
func (d database) server() (string, error) {
	dsn := os.Getenv(d.variable)
	if !local.MatchString(dsn) {
		return "", fmt.Errorf("%s names no server of this machine: a bench puts load on no other; "+
			"write root@tcp(127.0.0.1:3306)/ or postgres://postgres@127.0.0.1:5432/postgres", d.variable)
	}
	return dsn, nil
}

// step is a part of a measurement on one database.
type step[R any] func(result *R, s *shop) error

// compare runs each step on each database, before the next step: so other load on the machine affects all alike.
// The databases take turns in starting. It prints the results, and for each rate how many times that of the first
// database the others have.
func compare[R any](ctx context.Context, rates func(*R) map[string]measure.Number, steps ...step[R]) error {
	report := struct {
		Results map[string]*R                        `json:"databases"`
		Ratios  map[string]map[string]measure.Number `json:"times_mariadb"`
	}{map[string]*R{}, map[string]map[string]measure.Number{}}
	var shops []*shop
	for _, d := range databases {
		s, err := openShop(ctx, d)
		if err != nil {
			return fmt.Errorf("%s: %w", d.name, err)
		}
		defer s.close()
		shops = append(shops, s)
		report.Results[d.name] = new(R)
	}
	for n, do := range steps {
		for i := range shops {
			s := shops[(i+n)%len(shops)]
			if err := do(report.Results[s.on.name], s); err != nil {
				return fmt.Errorf("%s: %w", s.on.name, err)
			}
		}
	}
	base := rates(report.Results[databases[0].name])
	for _, d := range databases[1:] {
		times := map[string]measure.Number{}
		for what, rate := range rates(report.Results[d.name]) {
			times[what] = rate / base[what]
			fmt.Fprintf(os.Stderr, "%-34s %s %.0f/s, %s %.0f/s: × %.2f\n", what, databases[0].name, base[what], d.name, rate, times[what])
		}
		report.Ratios[d.name] = times
	}
	return errors.Join(ctx.Err(), measure.Print(os.Stdout, os.Stderr, report))
}
