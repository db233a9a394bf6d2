package store_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/settings"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/ring"
	"github.com/orderclose/orderclose/internal/testkit/servers"
	"github.com/orderclose/orderclose/internal/testkit/storetest"
)

// A server of a new version may have a variable that cuts answers. Add it to settings.csv of the package settings, and say what is done about it.
func TestSettings_TheListHasEachVariableOfASession(t *testing.T) {
	eachDatabase(t, func(t *testing.T) {
		untried := must.Get(open(t, store.Options{DSN: ownDatabase(t)}).Untried(t.Context()))(t)
		must.That(t, untried == "", "%s", untried)
	})
}

// unusual are values that a server of a shop may have; "": the test does not change the variable. Of other variables ON becomes OFF, a number 1,
// and a word of PostgreSQL another one of those that the server lists.
var unusual = map[string]string{
	"wait_timeout": "60", "net_read_timeout": "60", "net_write_timeout": "60", "idle_transaction_timeout": "60", "idle_write_transaction_timeout": "60",
	"idle_readonly_transaction_timeout": "60", "idle_in_transaction_session_timeout": "60000", "tcp_user_timeout": "60000",
	"time_zone": "'+08:00'", "sql_mode": "'ANSI,NO_BACKSLASH_ESCAPES'", "sql_select_limit": "2", "completion_type": "1", "max_join_size": "1",
	"max_statement_time": "0.001", "system_versioning_asof": "'2020-01-01 00:00:00'", "character_set_client": "latin1",
	"character_set_results": "latin1", "character_set_connection": "latin1", "character_set_server": "latin1", "collation_connection": "utf8mb4_general_ci",
	"default_collation_for_utf8mb4": "utf8mb4_general_ci", "default_storage_engine": "MyISAM", "default_tmp_storage_engine": "MyISAM",
	"lc_messages": "de_DE", "lc_time_names": "de_DE", "tx_isolation": "SERIALIZABLE", "transaction_isolation": "SERIALIZABLE",
	"optimizer_switch": "'derived_merge=off'", "optimizer_search_depth": "4", // with 1 and without derived_merge, MySQL describes tables in minutes
	"alter_algorithm": "COPY", "use_stat_tables": "NEVER", "old_mode": "'ZERO_DATE_TIME_CAST'",
	"default_regex_flags": "'EXTENDED'", "binlog_row_image": "MINIMAL", "internal_tmp_mem_storage_engine": "MEMORY",
	"session_track_transaction_info": "STATE", "sql_require_primary_key": "1", "sql_log_bin": "",
	"default_table_encryption": "", // needs a key ring

	"timezone": "'Asia/Shanghai'", "client_encoding": "'LATIN1'", "datestyle": "'SQL, DMY'", "statement_timeout": "1000",
	"default_text_search_config": "'simple'", "timezone_abbreviations": "'India'", "search_path": "", // tables would lie elsewhere
	"debug_discard_caches": "", "log_min_messages": "", "wal_consistency_checking": "", "ignore_system_indexes": "", // slow
}

// TestSettings_NoUnusualValueHarms plays a part of the suite on servers with unusual values: all that are forced or set, and three rows of
// harmless ones at a time. SETTINGS=each plays each variable by itself, SETTINGS=NAME that variable.
func TestSettings_NoUnusualValueHarms(t *testing.T) {
	if os.Getenv("SETTINGS") == "" {
		ring.OnlyAll(t, "TestForce_SessionsHaveTheForcedValues, and each test on a real server, whose connections are checked")
	}
	eachDatabase(t, unusualValues)
}

func unusualValues(t *testing.T) {
	kind := map[string]string{"mariadb": settings.MariaDB, "mysql": settings.MySQL, "postgres": settings.Postgres}[kindOf(t)]
	admin, dsn, set := withSettings(t)
	for _, refused := range settings.Of(kind, "refused") {
		t.Run(refused.Names[0], func(t *testing.T) {
			defer set(t, refused.Names)()
			err := open(t, store.Options{DSN: dsn}).Ping(t.Context())
			must.That(t, errors.Is(err, store.ErrServer) && strings.Contains(err.Error(), refused.Names[0]), "%v, want a refusal", err)
		})
	}
	parts := [][]settings.Setting{slices.Concat(settings.Of(kind, "forced"), settings.Of(kind, "limit"), settings.Of(kind, "set"))}
	for _, rows := range slices.AppendSeq(parts, slices.Chunk(settings.Of(kind, "harmless"), 3)) {
		names := variables(t, admin, kind, rows)
		groups := [][]string{names}
		if one := os.Getenv("SETTINGS"); one != "" {
			names = slices.DeleteFunc(names, func(name string) bool { return one != "each" && one != name })
			groups = slices.Collect(slices.Chunk(names, 1))
		}
		for _, names := range groups {
			t.Run(names[0], func(t *testing.T) {
				defer set(t, names)()
				server := storetest.OnServer(dsn)
				server.Only = storetest.Settings
				t.Run("suite", func(t *testing.T) { storetest.Run(t, server) })
			})
		}
	}
}

// variables returns the variables of the server that rows stand for.
func variables(t *testing.T, admin *sql.DB, kind string, of []settings.Setting) (all []string) {
	t.Helper()
	query := "SHOW GLOBAL VARIABLES"
	if kind == settings.Postgres {
		query = "SELECT name, '' FROM pg_settings WHERE context IN ('user', 'superuser')"
	}
	rows := must.Get(admin.QueryContext(t.Context(), query))(t)
	defer rows.Close()
	for rows.Next() {
		var name, value string
		must.Do(t, rows.Scan(&name, &value))
		found := settings.Find(kind, name)
		if slices.ContainsFunc(of, func(s settings.Setting) bool { return slices.Equal(s.Names, found.Names) }) {
			all = append(all, strings.ToLower(name))
		}
	}
	must.Do(t, rows.Err())
	if kind != settings.Postgres { // the others are of the server only
		all = slices.DeleteFunc(all, func(name string) bool {
			return admin.QueryRowContext(t.Context(), "SELECT @@session."+name).Scan(new(any)) != nil
		})
	}
	return all
}

// withSettings returns a server whose settings the test may change: a connection of its administrator, the DSN of programs, and a function that
// gives variables unusual values, until reset.
func withSettings(t *testing.T) (admin *sql.DB, dsn string, set func(t *testing.T, names []string) (reset func())) {
	t.Helper()
	if isPostgres(t) {
		return roleWithSettings(t)
	}
	own := must.Get(servers.New(kindOf(t), filepath.Join(t.TempDir(), "server")))(t)
	must.Do(t, own.Start(t.Context()))
	t.Cleanup(func() { must.Do(t, own.Stop(context.Background())) })
	dsn = "root@tcp(" + own.Addr() + ")/"
	admin = closed(t, must.Get(sql.Open("mysql", dsn+"?sql_mode=''"))(t))
	admin.SetMaxOpenConns(1) // new sessions would have the unusual values
	return admin, dsn, func(t *testing.T, names []string) (reset func()) {
		var back []string
		for _, name := range names {
			var old string
			must.Do(t, admin.QueryRowContext(t.Context(), "SELECT COALESCE(@@global."+name+", '')").Scan(&old))
			if given(t, admin, "SET GLOBAL ", name, other(name, old)) {
				back = append(back, "SET GLOBAL "+name+" = DEFAULT")
			}
		}
		return func() {
			for _, statement := range back {
				must.Get(admin.Exec(statement))(t)
			}
		}
	}
}

// roleWithSettings is withSettings on PostgreSQL: a user has the settings.
func roleWithSettings(t *testing.T) (admin *sql.DB, dsn string, set func(t *testing.T, names []string) (reset func())) {
	t.Helper()
	admin = closed(t, must.Get(sql.Open("pgx", realDSN(t)))(t))
	role := "u" + strings.ToLower(rand.Text())
	exec(t, admin, "CREATE ROLE "+role+" SUPERUSER LOGIN")
	t.Cleanup(func() { must.Get(admin.Exec("DROP ROLE " + role))(t) })
	at := must.Get(url.Parse(realDSN(t)))(t)
	at.User = url.User(role)
	return admin, at.String(), func(t *testing.T, names []string) (reset func()) {
		for _, name := range names {
			var old, words string
			const query = "SELECT COALESCE(boot_val, ''), COALESCE(array_to_string(enumvals, ','), '') FROM pg_settings WHERE lower(name) = lower($1)"
			must.Do(t, admin.QueryRowContext(t.Context(), query, name).Scan(&old, &words))
			value := other(name, old)
			for word := range strings.SplitSeq(words, ",") {
				if _, set := unusual[name]; word != old && word != "" && !set {
					value = "'" + word + "'"
				}
			}
			given(t, admin, "ALTER ROLE "+role+" SET ", name, value)
		}
		return func() { must.Get(admin.Exec("ALTER ROLE " + role + " RESET ALL"))(t) }
	}
}

// given gives a variable a value, and reports whether the server took it: some values need more than this server has.
func given(t *testing.T, admin *sql.DB, set, name, value string) bool {
	t.Helper()
	if value == "" {
		return false
	}
	_, err := admin.ExecContext(t.Context(), set+name+" = "+value)
	t.Logf("%s = %s: %v", name, value, err)
	return err == nil
}

// other returns an unusual value of a variable; "": none is known.
func other(name, old string) string {
	if value, ok := unusual[name]; ok {
		return value
	}
	switch _, err := strconv.ParseFloat(old, 64); {
	case strings.EqualFold(old, "ON"):
		return "OFF"
	case strings.EqualFold(old, "OFF"):
		return "ON"
	case err != nil:
		return ""
	case old == "1":
		return "0"
	}
	return "1"
}
