package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/store"
)

// databaseDown is the section of the runbook on a database that fails.
const databaseDown = "the-database-is-down-or-slow"

func (e exam) checkDatabase(ctx context.Context) (all []checkup) {
	s := e.session
	if s.Store == nil {
		if s.found.Unknown("orders") {
			return []checkup{notChecked("database")}
		}
		return []checkup{skipped("database", config.EnvDSN+" is not set")}
	}
	ping := s.check(ctx, "database", func(ctx context.Context, check string) checkup {
		name := cmp.Or(s.Store.Database(), "the database")
		if err := s.Store.Ping(ctx); err != nil {
			return inRunbook(check, fmt.Sprintf("%s: %v", name, err), databaseDown)
		}
		server, err := s.Store.Server(ctx)
		if err != nil {
			return inRunbook(check, fmt.Sprintf("%s: %v", name, err), databaseDown)
		}
		unsafe, err := s.Store.Unsafe(ctx)
		if err != nil {
			unsafe = err.Error()
		}
		notes := ""
		for _, note := range []string{s.Store.Warning(), unsafe} {
			if note != "" {
				notes += "; note: " + note
			}
		}
		return passed(check, "%s answers, its version is %s, and its session keeps UTC%s", name, server, notes)
	})
	if !ping.OK {
		return []checkup{ping}
	}
	version := ops.AskSchema.Of(e.Facts)
	schema := e.answer("schema", ops.SchemaDiffers, version.Err, schemaIs(version.Value))
	if schema.OK && version.Value.Has == 0 {
		schema = finding("schema", "this user may not read its version", "grant SELECT on the tables orderclose_schema and orderclose_rooms, or run "+
			"orderclose migrate if they do not exist; docs/security.md lists what each part needs")
	}
	all = append(all, ping, schema)
	all = append(all, s.checkTables(ctx)...)
	if s.Store.Dialect() == store.Postgres {
		all = append(all, s.check(ctx, "functions of triggers", func(ctx context.Context, check string) checkup {
			open, err := s.Store.OpenFunctions(ctx)
			switch {
			case err != nil:
				return inRunbook(check, err.Error(), databaseDown)
			case len(open) > 0:
				return finding(check, "every role may use the rights of the owner of "+strings.Join(open, ", "),
					"drop the trigger and create it again: orderclose trigger --print=postgres; docs/intake.md, A trigger")
			}
			return passed(check, "no function that schedules orders is open to every role")
		}))
	}
	if s.cfg != nil && s.cfg.Orders != nil && s.cfg.Orders.ByRule {
		all = append(all, s.check(ctx, "delays of orders", func(ctx context.Context, check string) checkup {
			if err := s.Store.CheckDelays(ctx); err != nil {
				return finding(check, err.Error(), "orderclose migrate, with the newest topics.yaml; docs/mapping.md, Due by rule")
			}
			return passed(check, "those of topics.yaml are in force")
		}))
	}
	const writes = "writes to the database"
	fit, byService := checkupsError(all) == nil, s.cfg != nil && s.cfg.Closer.Kind == config.KindHTTP && !s.found.Unknown("closer.http.url")
	if fit && s.cfg != nil && s.cfg.Orders != nil {
		all = append(all, s.check(ctx, "due times of orders", s.checkOrders))
	}
	if fit {
		all = append(all, s.check(ctx, "times of orders", s.checkTimes))
	}
	switch {
	case !fit:
		all = append(all, skipped(writes, "fix schema and tables first"))
	case byService:
		all = append(all, skipped(writes, "orders are closed by a service over HTTP"))
	default:
		all = append(all, s.check(ctx, writes, func(ctx context.Context, check string) checkup {
			if err := s.Store.Writable(ctx); err != nil { // what its user may not write is a finding too
				return inRunbook(check, err.Error(), "the-database-takes-no-writes")
			}
			return passed(check, "the writes of a close succeed")
		}, "closer.http.url"))
	}
	if fit && e.try {
		all = append(all, s.checkTrial(ctx))
	}
	return all
}

// tablesOfOrders is the name of the check of the mapping.
const tablesOfOrders = "tables of orders"

// checkTables compares the orders' tables with the mapping. Each problem is a finding.
func (s *session) checkTables(ctx context.Context) []checkup {
	const check = tablesOfOrders
	ctx, cancel := context.WithTimeout(ctx, doctorTimeout)
	defer cancel()
	err := s.Store.CheckMapping(ctx)
	if all := mappingFindings(check, err); all != nil {
		return all
	}
	notes, noteErr := s.Store.MappingHints(ctx)
	if err = cmp.Or(err, noteErr); err != nil {
		return []checkup{inRunbook(check, err.Error(), databaseDown)}
	}
	return []checkup{passed(check, "%s", strings.Join(append([]string{"they fit the mapping"}, notes...), "; note: "))}
}

// mappingFindings returns a finding for each problem of an error that is about the mapping; nil: it is another error.
func mappingFindings(check string, err error) (all []checkup) {
	if wrong, ok := errors.AsType[*store.MappingError](err); ok {
		for _, p := range wrong.Problems {
			fix := p.How()
			p.Accept, p.Fix = "", "docs/mapping.md has every key"
			all = append(all, finding(check, p.Error(), fix))
		}
	}
	return all
}

const (
	// timesSample is how many unpaid orders checkTimes reads, and timesBefore how long before the
	// present their due times begin: as long as two time zones are apart at most.
	timesSample = 1000
	timesBefore = 14 * time.Hour
	timesAfter  = 366 * 24 * time.Hour
)

// checkTimes looks for orders whose times can only come from a wrong time zone. It reads the sweep's
// index, and only a sample.
func (s *session) checkTimes(ctx context.Context, check string) checkup {
	now, err := s.Store.Now(ctx)
	var orders []orderclose.Order
	if err == nil {
		orders, err = s.Store.DueBetween(ctx, now.Add(-timesBefore), now.Add(timesAfter), orderclose.Order{}, timesSample)
	}
	if err != nil {
		return inRunbook(check, err.Error(), databaseDown)
	}
	for _, o := range orders {
		why := ""
		switch {
		case o.CreatedAt.After(now.Add(time.Minute)):
			why = "is created in the future"
		case o.CreatedAt.After(o.Due):
			why = "is due before it was created"
		default:
			continue
		}
		return inRunbook(check, fmt.Sprintf("order %q %s: created %s, due %s, now %s: a program writes local time into a column of UTC, "+
			"or the zone of the mapping is wrong", o.ID, why, stamp(o.CreatedAt), stamp(o.Due), stamp(now)), "due-times-differ")
	}
	return passed(check, "%d unpaid orders were read; none is created in the future, or due before it was created", len(orders))
}

// checkTrial tries to close an order, for doctor --try-close.
func (s *session) checkTrial(ctx context.Context) checkup {
	const check = "close of one order"
	if s.cfg.Closer.Kind == config.KindHTTP {
		return skipped(check, "orders are closed by a service over HTTP")
	}
	return s.check(ctx, check, func(ctx context.Context, check string) checkup {
		t, err := s.Store.TryClose(ctx)
		if wrong := mappingFindings(check, err); wrong != nil {
			return wrong[0]
		}
		if err != nil {
			return finding(check, err.Error(), "docs/mapping.md#trying-a-close says what a trial needs")
		}
		return passed(check, "%s", tried(t))
	}, "closer.http.url")
}
