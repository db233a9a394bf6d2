package store_test

import (
	"crypto/rand"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// MySQL commits the CREATE TABLE of the table of steps by itself. If Migrate was interrupted before it wrote
// the first row, a later Migrate must write it.
func TestMigrate_ContinuesAfterItWasInterruptedAtTheVeryBeginning(t *testing.T) {
	eachServer(t, func(t *testing.T) {
		s := open(t, store.Options{DSN: ownDatabase(t)})
		var schema strings.Builder
		must.Do(t, s.WriteMigrations(&schema))
		_, first, _ := strings.Cut(schema.String(), "\nCREATE TABLE")
		first, _, _ = strings.Cut(first, ";\n")
		exec(t, s.DB(), "CREATE TABLE"+first)
		for range 2 {
			must.Do(t, s.Migrate(t.Context()))
			must.Do(t, s.Migrated(t.Context()))
		}
	})
}

// TestMigrated_AMissingGrantIsNotAMissingSchema: the server does not list tables on which the user has no privilege.
func TestMigrated_AMissingGrantIsNotAMissingSchema(t *testing.T) {
	eachServer(t, func(t *testing.T) {
		root := openMigrated(t, store.Options{})
		cfg, err := mysql.ParseDSN(realDSN(t))
		must.Do(t, err)
		var name string
		must.Do(t, root.DB().QueryRowContext(t.Context(), "SELECT DATABASE()").Scan(&name))
		cfg.DBName, cfg.User, cfg.Passwd = name, "u"+strings.ToLower(rand.Text()[:12]), ""
		exec(t, root.DB(), "CREATE USER "+cfg.User+"@'%' IDENTIFIED BY ''")
		defer exec(t, root.DB(), "DROP USER "+cfg.User+"@'%'")
		exec(t, root.DB(), "GRANT SELECT ON `"+name+"`.orders TO "+cfg.User+"@'%'")
		err = open(t, store.Options{DSN: cfg.FormatDSN()}).Migrated(t.Context())
		expect.That(t, err != nil && strings.Contains(err.Error(), "grant SELECT on the table orderclose_schema"), "a missing grant is reported as %v", err)
		exec(t, root.DB(), "GRANT SELECT ON `"+name+"`.* TO "+cfg.User+"@'%'")
		must.Do(t, open(t, store.Options{DSN: cfg.FormatDSN()}).Migrated(t.Context()))
	})
}
