package store_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// blocks returns the blocks of a page in a language, with text replaced.
func blocks(t *testing.T, page, language string, replace ...string) (all []string) {
	t.Helper()
	text := strings.NewReplacer(replace...).Replace(string(must.Get(os.ReadFile("../../docs/" + page))(t)))
	for _, block := range regexp.MustCompile("(?s)```"+language+"\n(.*?)\n *```").FindAllStringSubmatch(text, -1) {
		all = append(all, block[1])
	}
	return all
}

// An order of the first steps in docs/sweeper.md closes after its delay.
func TestDocuments_TheFirstStepsOfTheSweeper(t *testing.T) { eachDatabase(t, firstSteps) }

func firstSteps(t *testing.T) {
	var replace []string
	if isPostgres(t) {
		replace = []string{"BIGINT       NOT NULL AUTO_INCREMENT", "BIGSERIAL", "TIMESTAMP    NOT", "TIMESTAMPTZ(0) NOT", "type: timestamp,", "type: timestamptz,"}
	}
	statements, dsn := blocks(t, "sweeper.md", "sql", replace...), ownDatabase(t)
	cfg := must.Get(config.Parse("topics.yaml", []byte(blocks(t, "sweeper.md", "yaml", replace...)[0]), config.WithoutKafka))(t)
	s := open(t, store.Options{DSN: dsn, Orders: cfg.Orders, Delays: cfg.Delays})
	for statement := range strings.SplitSeq(strings.TrimSuffix(statements[0], ";"), ";\n") {
		exec(t, s.DB(), statement)
	}
	must.Do(t, s.CheckMapping(t.Context()))
	must.Do(t, s.Migrate(t.Context()))
	must.Do(t, s.RecordDelays(t.Context()))
	insert, _, _ := strings.Cut(statements[1], ";")
	exec(t, s.DB(), insert)
	for after, want := range map[time.Duration]int{0: 0, 31 * time.Second: 1} {
		late := must.Get(s.Overdue(t.Context(), must.Get(s.Now(t.Context()))(t).Add(after), orderclose.Order{}, 10))(t)
		expect.Equal(t, len(late), want, "overdue in %v", after)
	}
	exec(t, s.DB(), "UPDATE shop_orders SET created_at = created_at - INTERVAL '1' MINUTE")
	must.Get(s.CloseOrders(t.Context(), orderclose.PathSweep, []orderclose.CloseRequest{{OrderID: "1"}}))(t)
	expect.Equal(t, scalar(t, s, "SELECT state FROM shop_orders"), "closed", "the order")
}

// The statements of docs/mapping.md: a close returns stock that has a limit, and the trigger lets nobody open its order again.
func TestMySQL_TheStatementsOfThePageOfMappings(t *testing.T) { eachServer(t, statementsOfMappings) }

func statementsOfMappings(t *testing.T) {
	all := blocks(t, "mapping.md", "sql", "t_stock", "g", "t_line", "l", "l.qty", "l.n", "order_id", "no", "t_order", "o", "= 5 ", "= 2 ")
	must.That(t, len(all) == 2, "docs/mapping.md has %d statements", len(all))
	m := *spelling
	m.Stock, m.OnClose = nil, []string{all[1]}
	s := open(t, store.Options{DSN: ownDatabase(t), Orders: &m})
	createTables(t, s, "ALTER TABLE g ALTER held SET DEFAULT 0", "INSERT INTO o VALUES ('1', 0, 100)", "INSERT INTO l VALUES ('1', 'a', 2), ('1', 'b', 2)",
		"INSERT INTO g (sku, free, held) VALUES ('a', 5, 0), ('b', -1, 0)")
	_, trigger, _ := strings.Cut(all[0], "\n")
	exec(t, s.DB(), trigger)
	must.Get(s.CloseOrders(t.Context(), orderclose.PathSweep, []orderclose.CloseRequest{{OrderID: "1"}}))(t)
	expect.Equal(t, scalar(t, s, "SELECT GROUP_CONCAT(free ORDER BY sku) FROM g WHERE sku IN ('a', 'b')"), "7,-1", "the stock")
	_, err := s.DB().ExecContext(t.Context(), "UPDATE o SET status = 1")
	expect.That(t, err != nil && scalar(t, s, "SELECT status FROM o") == "2", "the order was opened again: %v", err)
}

// The statement of the runbook for a delay that was too short moves the orders of that time, once.
func TestDocuments_OrdersWithAWrongDelayAreMoved(t *testing.T) { eachDatabase(t, wrongDelay) }

func wrongDelay(t *testing.T) {
	language := map[bool]string{true: "postgres", false: "sql"}[isPostgres(t)]
	s := open(t, store.Options{DSN: ownDatabase(t)})
	must.Do(t, s.Migrate(t.Context()))
	exec(t, s.DB(), "INSERT INTO orders (id, category, status, created_at, expire_at, version) VALUES "+
		"('1', 'virtual', 0, '2026-11-20 13:10:00', '2026-11-20 13:13:00', 1), ('2', 'virtual', 0, '2026-11-20 12:10:00', '2026-11-20 12:13:00', 1)")
	ran := 0
	for _, block := range blocks(t, "runbook.md", language) {
		if strings.Contains(block, "UPDATE orders SET expire_at") {
			for range 2 {
				exec(t, s.DB(), strings.TrimSuffix(block[strings.Index(block, "UPDATE"):], ";"))
			}
			ran++
		}
	}
	moved := scalar(t, s, "SELECT CONCAT(id, ' ', version) FROM orders WHERE expire_at = created_at + INTERVAL '30' MINUTE")
	expect.That(t, ran == 1 && moved == "1 2", "%d statements have moved the orders %s", ran, moved)
}
