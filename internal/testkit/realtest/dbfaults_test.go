package realtest

import (
	"fmt"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
)

// answerWithin is the read timeout of the pipeline.
const answerWithin = 3 * time.Second

// faultyPipeline is a pipeline whose connection to the database leads through a proxy to a server of its own, as a user without privileges. The shop
// connects directly, as root.
type faultyPipeline struct {
	*rig
	server *ownServer
	proxy  *testkit.Proxy
}

// databaseFaults are the faults of the database and of the connection to it. Each function starts a fault and returns a function that ends it. (Random
// rounds on real servers, make chaos-real, have more of them.)
func databaseFaults() []databaseFault {
	faults := []databaseFault{
		{"commits lost after", (*faultyPipeline).loseCommits},
		{"killed and started again", (*faultyPipeline).kill},
		{"read-only", func(s *faultyPipeline) func() {
			s.exec("SET GLOBAL read_only = 1") // applies to all users but root
			return func() { s.exec("SET GLOBAL read_only = 0") }
		}},
	}
	for _, f := range testkit.NetworkFaults {
		faults = append(faults, databaseFault{f.Name, func(s *faultyPipeline) func() {
			f.Begin(s.proxy, 2000)
			return s.proxy.Heal
		}})
	}
	return faults
}

type databaseFault struct {
	name  string
	begin func(s *faultyPipeline) (end func())
}

// inTest is how many of them make test plays.
const inTest = 6

// Orders become due, and are paid, under each fault in turn. There are no sweeps: the closer recovers from each fault by itself, gives no order up, and
// uses up none of its attempts. The log has the duration of each. (A full disk is tested in internal/testkit/simulation.)
func TestReal_ThePipelineClosesEveryOrderDespiteDatabaseFaults(t *testing.T) {
	eachOwnDatabase(t, func(database) []string { return nil }, func(t *testing.T, servers environ.Servers, own *ownServer) {
		s := newFaultyPipeline(t, servers, own)
		s.start("relay", "closer")
		for n, fault := range inRing(databaseFaults()[:inTest], databaseFaults()) {
			t.Run(fault.name, func(t *testing.T) { s.endure(t, uint64(n), fault.begin) })
		}
		v := s.check()
		expect.That(t, v.ByPath["pipeline"] != 0, "closed by path %v", v.ByPath)
		for what, query := range map[string]string{
			"orders closed at a later attempt": "SELECT COUNT(*) FROM receipts WHERE attempts <> 0",
			"closed orders without one event": "SELECT COUNT(*) FROM receipts r" +
				" WHERE (SELECT COUNT(*) FROM outbox_events e WHERE e.order_id = r.order_id AND e.payload NOT LIKE '%\"order.paid%') <> 1",
		} {
			expect.Equal(t, s.count(query), 0, "%s", what)
		}
	})
}

func newFaultyPipeline(t *testing.T, servers environ.Servers, own *ownServer) *faultyPipeline {
	t.Helper()
	s := &faultyPipeline{rig: newRig(t, servers), server: own}
	s.disturbed = true

	cfg := must.Get(mysql.ParseDSN(s.servers.DSN))(t)
	s.exec("CREATE USER pipeline@'%' IDENTIFIED BY ''")
	s.exec("GRANT SELECT, INSERT, UPDATE, DELETE ON `" + cfg.DBName + "`.* TO pipeline@'%'")
	s.proxy = must.Get(testkit.NewProxy(cfg.Addr))(t)
	t.Cleanup(func() { s.proxy.Close() })
	cfg.User, cfg.ReadTimeout = "pipeline", answerWithin
	cfg.Addr = s.proxy.Addr()
	s.servers.DSN = cfg.FormatDSN() // for the processes that are started from here on
	return s
}

// endure plays orders. The fault lasts from the moment when all are created until all are due. Then each is paid or closed.
func (s *faultyPipeline) endure(t *testing.T, seed uint64, begin func(*faultyPipeline) func()) {
	defer func(t *testing.T) { s.t = t }(s.t)
	s.t = t
	const orders = 40
	before := len(s.shop.Created())
	s.loadWith(scenario.Spec{Seed: seed, Orders: orders, Over: time.Second, Categories: []string{"flash-sale"}}, func() {
		s.created(before + orders)
		end := begin(s)
		scenario.At(t.Context(), s.shop.LastDue().Add(time.Second))
		end()
	})
	s.eventually(func() error {
		var unpaid int
		err := s.store.DB().QueryRow("SELECT COUNT(*) FROM orders WHERE status = 0 AND id LIKE ?", fmt.Sprintf("order-%d-%%", seed)).Scan(&unpaid)
		if err == nil && unpaid > 0 {
			err = fmt.Errorf("%d orders are open after the fault", unpaid)
		}
		return err
	})
}

func (s *faultyPipeline) exec(query string, args ...any) {
	s.t.Helper()
	_, err := s.store.DB().Exec(query, args...)
	expect.That(s.t, err == nil, "%s: %v", query, err)
}

// loseCommits breaks the connection at each of the next three commits, before the answer.
func (s *faultyPipeline) loseCommits() (end func()) {
	var sprung []<-chan struct{}
	for range 3 {
		sprung = append(sprung, s.proxy.CutAnswer(testkit.MySQLCommit))
	}
	return func() {
		for n, c := range sprung {
			select {
			case <-c:
			case <-time.After(waitLimit):
				s.t.Errorf("nobody made commit %d of %d", n+1, len(sprung))
			}
		}
		s.proxy.Heal()
	}
}

// kill kills the server, as a power failure does, and starts it again. A server in a container would lose its data; it is made unreachable instead.
func (s *faultyPipeline) kill() (end func()) {
	if s.server.PID() == 0 {
		s.proxy.Disconnect()
		return s.proxy.Heal
	}
	s.server.kill()
	return s.server.start
}
