package store_test

import (
	"context"
	"crypto/rand"
	"slices"
	"strings"
	"testing"

	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
)

// The function of the trigger has the rights of its owner. A role that has a schema of its own, and no right on the
// orders, must not use it for a table whose casts are its own functions: neither in a new trigger nor in an old one.
func TestPostgres_AForeignTableDoesNotUseTheFunctionOfTheTrigger(t *testing.T) {
	t.Run("postgres", foreignTableWithTheTrigger)
}

func foreignTableWithTheTrigger(t *testing.T) {
	s := ownSchema(t)
	exec(t, s.DB(), printedTrigger(t, mapping.Reference(), store.TriggerOptions{}))
	wantOpen := func(want ...string) {
		t.Helper()
		got, err := s.OpenFunctions(t.Context())
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("open functions: %v, %v; want %v", got, err, want)
		}
	}
	wantOpen()
	exec(t, s.DB(), "GRANT EXECUTE ON FUNCTION orderclose_schedule_orders() TO PUBLIC")
	wantOpen("orderclose_schedule_orders()")
	exec(t, s.DB(), "REVOKE EXECUTE ON FUNCTION orderclose_schedule_orders() FROM PUBLIC")
	mallory := role(t, s)
	exec(t, s.DB(), "CREATE SCHEMA mallory AUTHORIZATION "+mallory)
	as := func(statement string) error {
		_, err := s.DB().ExecContext(t.Context(), "BEGIN; SET LOCAL ROLE "+mallory+"; "+statement+"; COMMIT")
		if err != nil {
			exec(t, s.DB(), "ROLLBACK")
		}
		return err
	}
	must.Do(t, as(`CREATE TYPE mallory.evil AS (s text);
		CREATE FUNCTION mallory.f(mallory.evil) RETURNS text LANGUAGE plpgsql AS $$ BEGIN UPDATE public.orders SET status = 1; RETURN ($1).s; END $$;
		CREATE CAST (mallory.evil AS text) WITH FUNCTION mallory.f(mallory.evil);
		CREATE TABLE mallory.t (id mallory.evil, category varchar(64), status smallint, created_at timestamptz, expire_at timestamptz)`))
	attach := "CREATE TRIGGER x AFTER INSERT ON mallory.t FOR EACH ROW EXECUTE FUNCTION public.orderclose_schedule_orders()"
	if err := as(attach); err == nil || !strings.Contains(err.Error(), "permission denied for function public.orderclose_schedule_orders") {
		t.Errorf("a foreign trigger: %v; want that permission is denied", err)
	}
	exec(t, s.DB(), attach) // as one that exists since before the REVOKE
	overdue(t, s, "a")
	err := as("INSERT INTO mallory.t VALUES (ROW('a'), '', 0, now(), now() + interval '1 hour')")
	if err == nil || !strings.Contains(err.Error(), `schedules the orders of "public"."orders", and mallory.t is another table`) {
		t.Errorf("an INSERT that fires a foreign trigger: %v; want that the function refuses the table", err)
	}
	if got := texts(t, s, "SELECT status FROM orders"); got != "0" {
		t.Errorf("the order has the status %s", got)
	}
}

// The owner of the function needs INSERT on the outbox alone. The shop's user needs no right to the outbox, and may
// insert into the table of orders or into a partition of it.
func TestPostgres_AnOwnerWithOneRightSuffices(t *testing.T) { t.Run("postgres", ownerWithOneRight) }

func ownerWithOneRight(t *testing.T) {
	s := ownSchema(t)
	owner, shop := role(t, s), role(t, s)
	exec(t, s.DB(), `CREATE TABLE sales (id text, state int, due timestamptz, PRIMARY KEY (id, due)) PARTITION BY RANGE (due);
		CREATE TABLE sales_now PARTITION OF sales FOR VALUES FROM ('2020-01-01') TO ('2100-01-01')`)
	m := postgresMapping(t, " {table: sales, id: id, status: {column: state, from: 0, to: 2}, due: {column: due, type: timestamptz, precision: us}, "+
		"items: none, stock: none}")
	exec(t, s.DB(), printedTrigger(t, m, store.TriggerOptions{}))
	exec(t, s.DB(), `GRANT INSERT ON outbox_schedules TO `+owner+`; GRANT CREATE ON SCHEMA public TO `+owner+`;
		ALTER FUNCTION public.orderclose_schedule_sales() OWNER TO `+owner+`; REVOKE CREATE ON SCHEMA public FROM `+owner+`;
		GRANT INSERT ON sales, sales_now TO `+shop)
	for n, table := range []string{"sales", "sales_now"} {
		exec(t, s.DB(), "BEGIN; SET LOCAL ROLE "+shop+"; INSERT INTO "+table+" VALUES ('a"+table+"', 0, now() + interval '1 hour'); COMMIT")
		if got := texts(t, s, "SELECT COUNT(*) FROM outbox_schedules"); got != []string{"1", "2"}[n] {
			t.Errorf("after an order in %s the outbox has %s rows", table, got)
		}
	}
}

// ownSchema opens a database of the test's own with the schema, because the test changes more than rows.
func ownSchema(t *testing.T) *store.Store {
	t.Helper()
	s := open(t, store.Options{DSN: ownDatabase(t)})
	must.Do(t, s.Migrate(t.Context()))
	must.Do(t, scenario.OrdersOf(s).PutStock(t.Context(), "ink", 1000))
	return s
}

func printedTrigger(t *testing.T, m *mapping.Mapping, o store.TriggerOptions) string {
	t.Helper()
	statement := must.Get(store.Trigger(store.Postgres, m, o))(t)
	return statement
}

// role creates a role. It drops the role and what it owns when the test ends.
func role(t *testing.T, s *store.Store) string {
	t.Helper()
	name := "oc_" + strings.ToLower(rand.Text())
	exec(t, s.DB(), "CREATE ROLE "+name)
	t.Cleanup(func() {
		must.Get(s.DB().ExecContext(context.WithoutCancel(t.Context()), "DROP OWNED BY "+name+" CASCADE; DROP ROLE "+name))(t)
	})
	return name
}
