package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
)

// polling looks for due orders in a table of the shop's database, page by page, and closes each
// page in a transaction.
type polling struct {
	run   run
	every time.Duration
	db    *sql.DB
}

const (
	pollDatabase = "peers"
	pollPage     = 500
)

func newPolling(every time.Duration) func(run) way {
	return func(r run) way { return &polling{run: r, every: every} }
}

// dsnOf returns the DSN of a database; its name may be empty.
func dsnOf(address, database string) string {
	return fmt.Sprintf("root@tcp(%s)/%s?interpolateParams=true&parseTime=true&timeTruncate=1ms", address, database)
}

func (p *polling) connect() (err error) {
	p.db, err = sql.Open("mysql", dsnOf(p.run.Servers["mariadb"], pollDatabase))
	if err == nil {
		p.db.SetMaxOpenConns(p.run.Publishers + 2)
		p.db.SetMaxIdleConns(p.run.Publishers + 2)
	}
	return err
}

func (p *polling) open(ctx context.Context) error {
	admin, err := sql.Open("mysql", dsnOf(p.run.Servers["mariadb"], ""))
	if err != nil {
		return err
	}
	defer admin.Close()
	if _, err := admin.ExecContext(ctx, "CREATE DATABASE IF NOT EXISTS "+pollDatabase); err != nil {
		return err
	}
	if err := p.connect(); err != nil {
		return err
	}
	for _, statement := range []string{
		"DROP TABLE IF EXISTS orders",
		`CREATE TABLE orders (
			id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
			status TINYINT NOT NULL DEFAULT 0,
			expire_at DATETIME(3) NOT NULL,
			body VARBINARY(1024) NOT NULL,
			KEY due (status, expire_at)
		) ENGINE=InnoDB`,
	} {
		if _, err := p.db.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

func (p *polling) publish(ctx context.Context, messages []message) error {
	args := make([]any, 0, 2*len(messages))
	for _, m := range messages {
		args = append(args, m.Due.UTC(), m.Body)
	}
	_, err := p.db.ExecContext(ctx, "INSERT INTO orders (expire_at, body) VALUES "+strings.TrimSuffix(strings.Repeat("(?, ?), ", len(messages)), ", "), args...)
	return err
}

func (p *polling) consume(ctx context.Context, to *receipts) error {
	if err := p.connect(); err != nil {
		return err
	}
	defer p.db.Close()
	return regularly(ctx, p.every, func() error {
		for n := pollPage; n == pollPage; {
			var err error
			n, err = p.closePage(ctx, to)
			if again, ok := errors.AsType[*mysql.MySQLError](err); ok && (again.Number == 1213 || again.Number == 1205) {
				n = pollPage // a deadlock, or a row that another transaction locks
			} else if err != nil {
				complain(ctx, "poll", err)
				break
			}
		}
		return nil
	})
}

// regularly calls poll in intervals until ctx ends or poll fails.
// Of polls that were missed, it makes up for one, as time.Ticker does.
func regularly(ctx context.Context, every time.Duration, poll func() error) error {
	for next := time.Now(); ; {
		next = next.Add(every)
		if late := time.Since(next); late > 0 {
			next = next.Add(late.Truncate(every))
		}
		if !sleep(ctx, time.Until(next)) {
			return nil
		}
		if err := poll(); err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// closePage closes up to pollPage due orders in one transaction and returns how many it found.
func (p *polling) closePage(ctx context.Context, to *receipts) (int, error) {
	tx, err := p.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return 0, err
	}
	defer tx.Rollback()
	rows, err := tx.QueryContext(ctx, `SELECT id, body FROM orders WHERE status = 0 AND expire_at <= ?
		ORDER BY expire_at LIMIT ? FOR UPDATE SKIP LOCKED`, time.Now().UTC(), pollPage)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	var ids []any
	var bodies [][]byte
	for rows.Next() {
		var id uint64
		var body []byte
		if err := rows.Scan(&id, &body); err != nil {
			return 0, err
		}
		ids, bodies = append(ids, id), append(bodies, body)
	}
	if err := rows.Err(); err != nil || len(ids) == 0 {
		return 0, err
	}
	found := time.Now()
	if _, err := tx.ExecContext(ctx, "UPDATE orders SET status = 2 WHERE id IN (?"+strings.Repeat(", ?", len(ids)-1)+")", ids...); err != nil {
		return 0, err
	}
	if err := tx.Commit(); err != nil {
		return 0, err
	}
	for _, b := range bodies {
		to.add(b, found)
	}
	return len(ids), to.flush()
}

func (p *polling) queries(ctx context.Context) (int64, error) { return questions(ctx, p.db) }

// questions returns how many statements clients have sent to the server.
func questions(ctx context.Context, db *sql.DB) (n int64, err error) {
	var name string
	err = db.QueryRowContext(ctx, "SHOW GLOBAL STATUS LIKE 'Questions'").Scan(&name, &n)
	return n, err
}

func (p *polling) settings(ctx context.Context) map[string]string {
	value := func(expression string) (v string) {
		if err := p.db.QueryRowContext(ctx, "SELECT "+expression).Scan(&v); err != nil {
			return err.Error()
		}
		return v
	}
	return map[string]string{
		"server": fmt.Sprintf("MariaDB %s, innodb_flush_log_at_trx_commit %s, buffer pool %s MiB", value("VERSION()"),
			value("@@innodb_flush_log_at_trx_commit"), value("@@innodb_buffer_pool_size DIV 1048576")),
		"client": versionOf("github.com/go-sql-driver/mysql"),
		"poll": fmt.Sprintf("1 poller, every %v: SELECT … LIMIT %d FOR UPDATE SKIP LOCKED, UPDATE, COMMIT; again until it finds fewer; "+
			"an index on (status, expire_at)", p.every, pollPage),
	}
}

func (p *polling) close() {
	if p.db != nil {
		p.db.Close()
	}
}
