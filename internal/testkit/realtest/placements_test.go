package realtest

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/ring"
)

// database is a kind of database, the variable that names a server of it, and the script of deploy/native that starts one.
type database struct{ kind, variable, script string }

// The kinds of database of the tests.
var (
	mariadb   = database{"mariadb", environ.EnvDSN, "mariadb"}
	mysqldb   = database{"mysql", "ORDERCLOSE_MYSQL_DSN", "mysql"}
	postgres  = database{"postgres", "ORDERCLOSE_POSTGRES_DSN", "postgresql"}
	nowhere   = database{} // of a test that make test does not run
	databases = []database{mariadb, mysqldb, postgres}
	onMySQL   = []database{mariadb, mysqldb} // take the SQL of MySQL
	onMariaDB = []database{mariadb}
)

// placement says where a test runs.
type placement struct {
	in    database   // in make test; nowhere: it runs in make test-all only
	on    []database // in make test-all
	alone string     // what only this test proves: what the simulation, on the embedded Kafka, cannot show
	// target is the variable of a target of the Makefile that plays the test, on all its databases; "": make test.
	target string
}

// placements has every test of this package that needs servers. The databases share the tests of make test.
var placements = map[string]placement{
	// The whole pipeline.
	"TestReal_EveryPromiseIsKept":                 {in: postgres, on: databases, alone: "all parts as processes, on a database in another time zone"},
	"TestReal_KillingARelayOrACloserLosesNothing": {in: mysqldb, on: databases, alone: "kill -9 of a member, and the group of a real coordinator"},
	"TestReal_KillingADispatcherLosesNothing": {in: postgres, on: databases,
		alone: "kill -9 between the acknowledgment of a broker and the deletion of a row"},
	"TestReal_RelaysComeAndGo": {in: mariadb, on: onMariaDB,
		alone: "the rebalances of a real coordinator, and a process that is frozen"},
	"TestReal_OneBrokerOfThree": {in: mariadb, on: onMariaDB, alone: "replication, and new leaders and coordinators of real brokers"},
	"TestReal_EveryKindOfLossIsRepaired": {in: mysqldb, on: onMySQL,
		alone: "what a real broker answers after retention, and about a topic that was recreated"},
	"TestReal_AClaimKnowsThatItsTopicIsGone": {in: mariadb, on: onMariaDB,
		alone: "what a real broker answers about a topic that was deleted, and its commits then"},
	"TestReal_AChangedTopicsFileIsAppliedWhileAllPartsRun": {in: postgres, on: []database{mariadb, postgres},
		alone: "signals and HTTP of processes, and topics that appear on a real broker"},
	"TestReal_TopicsCheckFindsDriftAndApplyFixesIt":            {in: mysqldb, on: onMySQL, alone: "how a real broker names and reports the settings of topics"},
	"TestReal_AReplayClosesWhatWasPassedOverBesideFreshOrders": {in: mysqldb, on: databases, alone: "the runbook's replay, beside fresh orders"},

	// Databases.
	"TestReal_ThePipelineClosesEveryOrderDespiteDatabaseFaults": {in: mariadb, on: onMySQL, alone: "faults of a real server and of the network to it"},
	"TestReal_AFailoverToAStandbyThatIsBehindLeavesNoOrderOpen": {in: nowhere, on: onMariaDB, alone: "replication, and a database that forgets"},
	"TestReal_AShopsOwnTables": {in: mysqldb, on: onMySQL,
		alone: "tables that a shop has, on a server in another time zone"},
	"TestReal_PaymentsRaceWithTheClose": {in: mariadb, on: databases,
		alone: "transactions of several processes that race for the same order"},
	"TestReal_SweepersNeedADatabaseOnly": {in: postgres, on: databases,
		alone: "the lock of a process that was killed ends with its connection"},
	"TestReal_TLSToDatabaseAndRedis":         {in: mariadb, on: onMariaDB, alone: "TLS, and which error names which setting"},
	"TestReal_TLSToPostgreSQL":               {in: postgres, on: []database{postgres}, alone: "TLS, and which error names which setting"},
	"TestReal_AStandbyOfPostgreSQLIsNoStore": {in: postgres, on: []database{postgres}, alone: "a standby, and two servers in a DSN"},

	// Sweeps and their lock.
	"TestReal_ASweepStopsWhenItMayHaveLostItsLock": {in: mariadb, on: onMariaDB,
		alone: "connections to a real Redis and a real database that fail in the middle"},
	"TestReal_APassByHandNeedsNoLock":         {in: mysqldb, on: databases, alone: "the command with a Redis that has the lock, hangs, or is not there"},
	"TestReal_TheLockFollowsAFailoverOfRedis": {in: mariadb, on: onMariaDB, alone: "a Redis with sentinels, by TLS and the user of docs/security.md"},
	"TestReal_TheLockIsInARedisCluster":       {in: mariadb, on: onMariaDB, alone: "a Redis cluster, by TLS and the user of docs/security.md"},

	// The shop, services and programs.
	"TestReal_TheShop":                    {in: mariadb, on: databases, alone: "the example shop as a process that is killed, with its caches in a real Redis"},
	"TestReal_OrdersCloseThroughAService": {in: mysqldb, on: onMySQL, alone: "a closer without a database, and HTTP between processes"},
	"TestReal_AProgramEmbedsTheModule":    {in: mysqldb, on: databases, alone: "a program outside of this repository"},

	// What an operator does.
	"TestReal_ADeadLetterEndsWithItsOrder":     {in: postgres, on: databases, alone: "the commands dlq, replay and order, beside a closer that runs"},
	"TestReal_DoctorAndTheQueriesOfTheRunbook": {in: mysqldb, on: databases, alone: "doctor and audit find a real installation healthy"},

	// A secured broker.
	"TestSecure":                                   {in: mariadb, on: onMariaDB, alone: "each way to authenticate, and no secret is shown"},
	"TestSecure_EachPartWorksWithItsRights":        {in: postgres, on: databases, alone: "exactly the rows of the tables in docs/security.md suffice"},
	"TestSecure_ASessionThatEndsCausesNoRebalance": {in: nowhere, on: onMariaDB, alone: "a broker that ends sessions"},

	"TestGameDay": {on: onMariaDB, target: "GAMEDAY", alone: "the alerts of a real Prometheus"},
	"TestUpgrade_UnderLoadAndBackLosesNothing": {on: databases, target: "UPGRADE_FROM", alone: "two versions of the program share their groups"},
}

// placementOf returns the placement of a test or subtest. It skips a test that this ring does not play.
func placementOf(t *testing.T) placement {
	t.Helper()
	name, _, _ := strings.Cut(t.Name(), "/")
	s, listed := placements[name]
	must.That(t, listed, "placements does not say where %s runs", name)
	if s.target == "" && s.in == nowhere {
		ring.OnlyAll(t, "none")
	}
	return s
}

// played returns the databases on which this ring runs a test.
func (s placement) played() []database {
	if ring.All() || s.target != "" {
		return s.on
	}
	return []database{s.in}
}

// realServers returns the servers that the environment names, for a test that runs on one database.
func realServers(t *testing.T) environ.Servers {
	t.Helper()
	on := placementOf(t).played()
	if len(on) != 1 {
		t.Fatalf("%s runs on %d databases: it needs eachDatabase", t.Name(), len(on))
	}
	return serversWith(t, on[0])
}

// serversWith is realServers with a kind of database.
func serversWith(t *testing.T, d database) environ.Servers {
	t.Helper()
	s, err := environ.Read(os.LookupEnv)
	if err == nil {
		err = s.Require(environ.EnvBrokers, environ.EnvDSN, environ.EnvRedis)
	}
	if s.DSN = os.Getenv(d.variable); err == nil && s.DSN == "" {
		err = fmt.Errorf("%s names no server", d.variable)
	}
	if err != nil && os.Getenv("REQUIRE_REAL") == "1" {
		t.Fatal(err)
	} else if err != nil {
		t.Skip(err)
	}
	return s
}

// eachDatabase runs test once for each kind of database on which this ring plays it, as a parallel subtest with the name of the kind.
func eachDatabase(t *testing.T, test func(t *testing.T, s environ.Servers)) {
	t.Helper()
	placementOf(t)
	t.Parallel()
	oneDatabaseAfterAnother(t, func(t *testing.T, s environ.Servers, _ database) {
		t.Parallel()
		test(t, s)
	})
}

// oneDatabaseAfterAnother is for a test that keeps the disk of the servers busy: it runs while no parallel test runs. Locks
// of other tests would time out.
func oneDatabaseAfterAnother(t *testing.T, test func(t *testing.T, s environ.Servers, d database)) {
	t.Helper()
	for _, d := range placementOf(t).played() {
		t.Run(d.kind, func(t *testing.T) { test(t, serversWith(t, d), d) })
	}
}

// eachOwnDatabase is eachDatabase with a database server of the test's own, started with the arguments for its kind.
func eachOwnDatabase(t *testing.T, args func(d database) []string, test func(t *testing.T, s environ.Servers, own *ownServer)) {
	t.Helper()
	placementOf(t)
	t.Parallel()
	oneDatabaseAfterAnother(t, func(t *testing.T, s environ.Servers, d database) {
		t.Parallel()
		own := startDatabase(t, d.script, args(d)...)
		s.DSN = own.dsn()
		test(t, s, own)
	})
}

// inRing returns few in make test, and all in make test-all.
func inRing[T any](few, all T) T {
	if ring.All() {
		return all
	}
	return few
}

var needsServers = regexp.MustCompile(`(?m)^func (Test(?:Real_\w+|Secure\w*|Upgrade_\w+|GameDay))\(`)

// TestPlacements_NameEveryTestAndShareTheDatabases fails if a test is not in the table, if the table has a test that does
// not exist, or if a database has less than a quarter of the tests.
func TestPlacements_NameEveryTestAndShareTheDatabases(t *testing.T) {
	files := must.Get(filepath.Glob("*_test.go"))(t)
	var written, listed []string
	for _, file := range files {
		for _, m := range needsServers.FindAllStringSubmatch(readFile(t, file), -1) {
			written = append(written, m[1])
		}
	}
	on, all := map[string]int{}, 0
	for name, s := range placements {
		listed = append(listed, name)
		expect.That(t, s.alone != "" && len(s.on) != 0, "the placement of %s is not complete: %+v", name, s)
		if s.in == nowhere {
			continue
		}
		if on[s.in.kind]++; !slices.Contains(s.on, s.in) {
			t.Errorf("make test-all does not play %s on %s", name, s.in.kind)
		}
		all++
	}
	slices.Sort(written)
	slices.Sort(listed)
	expect.That(t, slices.Equal(written, listed), "the tests are\n%v\nand placements has\n%v", written, listed)
	for _, d := range databases {
		expect.That(t, on[d.kind]*4 >= all, "%s has %d of %d tests", d.kind, on[d.kind], all)
	}
}
