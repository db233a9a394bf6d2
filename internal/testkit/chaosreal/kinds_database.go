//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/orderclose/orderclose/internal/testkit"
)

// How far the clock of the database is set off.
const (
	ahead  = 30 * time.Second
	behind = -10 * time.Second
)

// databaseKinds disturb the database, and the network between it and the pipeline.
var databaseKinds = []kind{
	{name: "kill-database", does: "the database by SIGKILL, started again", least: 500 * time.Millisecond, most: 3 * time.Second, on: onDatabase, forgets: true,
		play: func(w *world, e event) error { return w.killed(e, w.cluster.database) }},
	{name: "freeze-database", does: "the database by SIGSTOP, then SIGCONT", least: 2 * time.Second, most: 6 * time.Second, on: onDatabase,
		play: func(w *world, e event) error { return w.frozen(e, w.cluster.database) }},
	{name: "full-disk-database", does: "the disk of the database is filled, then the space is freed",
		least: 2 * time.Second, most: 5 * time.Second, on: onDatabase, needs: needsDisk, forgets: true,
		play: func(w *world, e event) error {
			free, err := fill(w.cluster.database.Dir)
			if err != nil {
				return err
			}
			w.hold(e)
			return errors.Join(free(), w.restart(w.cluster.database), w.rootExec("SELECT 1"))
		}},
	{name: "read-only", does: "the database is read-only for the pipeline; undone", least: 2 * time.Second, most: 5 * time.Second, on: onDatabase,
		play: func(w *world, e event) error {
			if err := w.rootExec(w.cluster.kind.readOnly...); err != nil {
				return err
			}
			w.hold(e)
			return w.rootExec(w.cluster.kind.writable...)
		}},
	{name: "read-lock", does: "no table can be written, as under FLUSH TABLES WITH READ LOCK; unlocked", least: time.Second, most: 4 * time.Second, on: onDatabase,
		play: func(w *world, e event) error { return w.session(e, w.cluster.kind.readLock...) }},
	{name: "table-locked", does: "the table orders is locked against reads and writes; unlocked", least: time.Second, most: 45 * time.Second, on: onDatabase,
		play: func(w *world, e event) error { return w.session(e, w.cluster.kind.lockOrders...) }},
	{name: "alter-table", does: "the table orders is rebuilt under load, by ALTER TABLE FORCE or VACUUM FULL",
		least: 100 * time.Millisecond, most: time.Second, on: onDatabase,
		play: func(w *world, e event) error { return w.session(e, w.cluster.kind.alter...) }},
	{name: "rows-locked", does: "a transaction locks the unpaid orders that are due soon; rolled back", least: time.Second, most: 4 * time.Second, on: onDatabase,
		play: func(w *world, e event) error {
			return w.session(e, "BEGIN", "SELECT id FROM orders WHERE status = 0 AND expire_at < "+w.cluster.kind.now+" + INTERVAL '3' SECOND FOR UPDATE")
		}},
	{name: "stock-locked", does: "a transaction locks half of the stock; rolled back", least: time.Second, most: 4 * time.Second, on: onDatabase,
		play: func(w *world, e event) error {
			return w.session(e, "BEGIN", "SELECT sku_id FROM stock WHERE sku_id < 'sku-100' FOR UPDATE")
		}},
	{name: "lines-changed", does: "the shop removes lines of orders in the moment in which they are closed, and returns their stock",
		least: 2 * time.Second, most: 6 * time.Second, on: onOrders, play: (*world).changeLines},
	{name: "sessions-killed", does: "every session of the pipeline is killed, five times a second",
		least: time.Second, most: 4 * time.Second, on: onDatabase, play: (*world).killSessions},
	{name: "too-many-connections", does: "no connection is left for the pipeline; undone", least: time.Second, most: 4 * time.Second,
		on: onDatabase, play: (*world).tooMany},
	{name: "database-clock-ahead", does: "the clock of the database is set ahead by half a minute, then right again",
		least: 3 * time.Second, most: 6 * time.Second, on: onDatabase, needs: needsClock, step: ahead,
		play: func(w *world, e event) error {
			defer w.witness.Blind(ahead + 10*time.Second)()
			return w.stepped(e, ahead)
		}},
	{name: "database-clock-behind", does: "the clock of the database is set back by 10 s, then right again",
		least: 3 * time.Second, most: 6 * time.Second, on: onDatabase, needs: needsClock, step: behind,
		play: func(w *world, e event) error {
			defer w.witness.Blind(5 * time.Second)()
			return w.stepped(e, behind)
		}},
	{name: "commit-answers-lost", does: "of several transactions the commit is done and its answer gets lost",
		least: time.Second, most: 3 * time.Second, on: onLink,
		play: func(w *world, e event) error {
			return w.disturb(e, loseCommits(func(l *testkit.Proxy) { l.CutAnswer(w.cluster.kind.commit) }), w.cluster.databaseLink)
		}},
	{name: "commits-lost", does: "of several transactions the commit never arrives", least: time.Second, most: 3 * time.Second, on: onLink,
		play: func(w *world, e event) error {
			return w.disturb(e, loseCommits(func(l *testkit.Proxy) { l.CutBefore(w.cluster.kind.commit) }), w.cluster.databaseLink)
		}},
}

// rootExec executes statements as root, and tries again while other faults prevent it.
func (w *world) rootExec(queries ...string) error {
	return w.eventually(func() error {
		ctx, cancel := context.WithTimeout(w.ctx, 10*time.Second)
		defer cancel()
		for _, query := range queries {
			if _, err := w.cluster.db.ExecContext(ctx, query); err != nil {
				return err
			}
		}
		return nil
	})
}

// session opens a session, executes statements in it, waits, and ends it, which undoes them.
func (w *world) session(e event, queries ...string) error {
	return w.eventually(func() error {
		db, err := w.cluster.open(w.cluster.kind.root, w.database())
		if err != nil {
			return err
		}
		defer db.Close()
		conn, err := db.Conn(w.ctx)
		if err != nil {
			return err
		}
		defer conn.Close()
		for _, query := range queries {
			if _, err := conn.ExecContext(w.ctx, w.cluster.table(query)); err != nil {
				return fmt.Errorf("%s: %w", query, err)
			}
		}
		w.hold(e)
		return nil
	})
}

// killSessions kills the sessions of the pipeline again and again.
func (w *world) killSessions(e event) error {
	for end := time.Now().Add(e.For); time.Now().Before(end); w.wait(200 * time.Millisecond) {
		rows, err := w.cluster.db.QueryContext(w.ctx, w.cluster.kind.sessions)
		if err != nil {
			continue // another fault is on
		}
		var ids []int64
		for rows.Next() {
			var id int64
			if rows.Scan(&id) == nil {
				ids = append(ids, id)
			}
		}
		_ = rows.Close()
		for _, id := range ids {
			_, _ = w.cluster.db.ExecContext(w.ctx, fmt.Sprintf(w.cluster.kind.end, id)) // it may have ended
		}
	}
	return nil
}

// tooMany takes every connection that the pipeline's user may have, and cuts those of the pipeline, so that it has to connect again.
func (w *world) tooMany(e event) error {
	if err := w.rootExec(w.cluster.kind.none); err != nil {
		return err
	}
	var hold sync.WaitGroup
	hold.Go(func() {
		db, err := w.cluster.open("pipeline", w.database())
		if err != nil {
			return
		}
		defer db.Close()
		_ = db.PingContext(w.ctx)
		w.hold(e)
	})
	w.cluster.databaseLink.Cut()
	hold.Wait()
	return w.rootExec(w.cluster.kind.some)
}
