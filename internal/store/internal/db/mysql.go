package db

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"gorm.io/gorm"

	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/internal/store/settings"
)

// MySQLDialect is that of MySQL and MariaDB.
var MySQLDialect = Dialect{
	Name:            MySQL,
	TellsTables:     true,
	LocalTime:       "DATETIME",
	Bigint:          "SIGNED",
	TextSQL:         "CAST(%s AS CHAR CHARACTER SET utf8mb4) COLLATE utf8mb4_bin",
	BytesSQL:        "CAST(CAST(%s AS CHAR CHARACTER SET utf8mb4) AS BINARY)", // MySQL and MariaDB name the collations without spaces differently
	Backslash:       true,
	Unsigned:        true,
	Now:             func() any { return gorm.Expr("UTC_TIMESTAMP(3)") }, // never NOW(3), which is in the session's zone
	Millis:          func() any { return gorm.Expr("TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000") },
	MicrosSQL:       "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', %s)",
	TimeLayout:      "2006-01-02 15:04:05.000",
	Fault:           ServerFault,
	ReleaseStock:    releaseStock,
	ReleaseWaits:    "SELECT VERSION() NOT LIKE '%MariaDB%'",
	Triggers:        executedTriggers,
	HereSQL:         "COALESCE(DATABASE(), '')",
	HomeSQL:         "COALESCE(DATABASE(), '')",
	InTxSQL:         "'', FALSE, ''",
	HasTable:        "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = ?",
	Tables:          "SELECT table_name FROM information_schema.tables WHERE table_schema = COALESCE(NULLIF(?, ''), DATABASE()) AND table_name LIKE ?",
	DeleteByID:      deleteByID,
	SessionLock:     mysqlLock.lock,
	OnConflict:      " ON DUPLICATE KEY UPDATE ",
	Given:           "VALUES(%s)",
	JSONArray:       "JSON_ARRAY",
	Version:         "SELECT VERSION()",
	Variables:       "SHOW GLOBAL VARIABLES",
	SessionVariable: "SELECT @@session.", // most are of the server only
	Silence:         func() string { return "SELECT " + settings.MySQLOver() },
	Unsafe:          unsafeSetting,
	ReadOnly:        "SELECT @@global.read_only",
	ForceIndex:      " FORCE INDEX (%s)",
	ForUpdate:       " FOR UPDATE",
	SkipLocked:      " FOR UPDATE SKIP LOCKED", // MariaDB since 10.6
	// MariaDB has no FOR SHARE, and MySQL no LOCK IN SHARE MODE that does not wait. Each executes one of the comments.
	ShareLock:     " /*!80001 FOR SHARE %s */ /*M!100600 LOCK IN SHARE MODE %s */",
	NoWait:        "/*M!100600 SET STATEMENT innodb_lock_wait_timeout = 0 FOR */ ",
	EntryLocks:    true,
	LockName:      lockName,
	Connection:    "SELECT CONNECTION_ID()",
	InTransaction: "SELECT @@in_transaction",
	RowTable:      "''",
	Describe:      describeTable,
	Rows:          Values,
	ScannedTable:  scannedTable,
	Distinct:      GroupBy,
	ShortWaits:    []string{"SET SESSION innodb_lock_wait_timeout = 1", "SET SESSION lock_wait_timeout = 1"},
	Snapshot:      &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true},
}

// unsafeSetting is Dialect.Unsafe.
func unsafeSetting(tx *gorm.DB) (string, error) {
	var flush, sync int
	var log bool
	err := tx.Raw("SELECT @@global.innodb_flush_log_at_trx_commit, @@global.log_bin, @@global.sync_binlog").Row().Scan(&flush, &log, &sync)
	const lost = "a crash of the server or of its machine loses closes whose events are published, and payments that were confirmed: set it to 1"
	switch {
	case err == nil && flush != 1:
		return fmt.Sprintf("innodb_flush_log_at_trx_commit is %d: %s", flush, lost), nil
	case err == nil && log && sync != 1:
		return fmt.Sprintf("sync_binlog is %d: %s", sync, lost), nil
	}
	return "", err
}

// lockName is Dialect.LockName. MySQL and MariaDB have different tables, and each executes one of the comments. A user without the privilege to read
// them gets an error.
const lockName = "SELECT CONCAT(lock_mode, ' of index ', COALESCE(index_name, '?'), ' of table ', REPLACE(object_name, CHAR(96), '')," +
	" IF(index_name = 'PRIMARY', CONCAT(', row ', COALESCE(lock_data, '?')), ''), ', held by connection ', holder) FROM (" +
	"/*!80001 SELECT l.lock_mode, l.index_name, l.object_name, l.lock_data, h.processlist_id AS holder FROM performance_schema.data_lock_waits w" +
	" JOIN performance_schema.data_locks l ON l.engine_lock_id = w.requesting_engine_lock_id" +
	" JOIN performance_schema.threads r ON r.thread_id = w.requesting_thread_id" +
	" JOIN performance_schema.threads h ON h.thread_id = w.blocking_thread_id WHERE r.processlist_id */" +
	"/*M!100600 SELECT l.lock_mode, l.lock_index AS index_name, l.lock_table AS object_name, l.lock_data, h.trx_mysql_thread_id AS holder" +
	" FROM information_schema.innodb_lock_waits w JOIN information_schema.innodb_locks l ON l.lock_id = w.requested_lock_id" +
	" JOIN information_schema.innodb_trx r ON r.trx_id = w.requesting_trx_id" +
	" JOIN information_schema.innodb_trx h ON h.trx_id = w.blocking_trx_id WHERE r.trx_mysql_thread_id */ = ?) AS oc_waits LIMIT 1"

// releaseStock returns an UPDATE that locks the SKUs in the order of the list: the join must
// begin with the list, and use the key.
// A CASE with a thousand branches would take twice as long.
func releaseStock(s *mapping.Stock, n int) string {
	set, where := ReleaseStock(s, "s.")
	columns, more := mapping.Quote(s.SKU.Column)+" AS sku", ", ?"
	if s.Location.Column != "" {
		columns, more = columns+", "+mapping.Quote(s.Location.Column)+" AS location", ", ?, ?"
	}
	return "UPDATE (SELECT " + columns + ", 0 AS quantity FROM " +
		mapping.Quote(s.Table) + " WHERE FALSE" + strings.Repeat(" UNION ALL SELECT ?"+more, n) + ") AS v" +
		" STRAIGHT_JOIN " + mapping.Quote(s.Table) + " AS s FORCE INDEX (" + mapping.Quote(s.SKU.Index) + ")" +
		" ON " + sameRow(s) + " SET " + set + " WHERE " + where
}

// deleteByID deletes each row by its key. For an IN list or a range a server may scan the table,
// even with a hint, and the scan waits for rows that other transactions locked. The ids are in one
// text, because a server spends longer on parsing a list of a thousand than on deleting the rows.
func deleteByID(table string) string {
	return "DELETE t FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$')) AS v" +
		" STRAIGHT_JOIN " + table + " AS t FORCE INDEX (PRIMARY) ON t.id = v.id"
}

// scannedTable asks MySQL how it would execute a statement. It returns the name or alias of a
// table that has no index for the statement; empty: there is none. The error is the database's
// refusal.
func scannedTable(ctx context.Context, db *gorm.DB, query string) (scanned string, err error) {
	rows, err := db.WithContext(ctx).Statement.ConnPool.QueryContext(ctx, "EXPLAIN FORMAT=TRADITIONAL "+query)
	if err != nil {
		return "", err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var step struct{ SelectType, Table, Type, PossibleKeys, Extra string }
		if err := db.ScanRows(rows, &step); err != nil {
			return "", err
		}
		// A table in <> is the result of another step of the plan; neither a table function such as JSON_TABLE nor a recursive step is stored. A
		// statement without a possible index reads all rows or all entries of an index.
		stored := step.Table != "" && !strings.HasPrefix(step.Table, "<") && !strings.Contains(step.Extra, "Table function") &&
			!strings.Contains(step.Extra, "Recursive")
		if (step.Type == "ALL" || step.Type == "index") && step.PossibleKeys == "" && step.SelectType != "INSERT" && stored {
			scanned = step.Table
		}
	}
	return scanned, rows.Err()
}

// inSchema limits a query of information_schema to one table.
const inSchema = " WHERE table_schema = COALESCE(NULLIF(?, ''), DATABASE()) AND table_name = ?"

// describeTable is Dialect.describe of MySQL and MariaDB.
func describeTable(tx *gorm.DB, database, table string) (t mapping.Table, ok bool, err error) {
	args := []any{database, table}
	found, err := RowsOf(Own(tx), "SELECT table_schema, table_name, table_schema = DATABASE(), table_type LIKE '%VIEW', COALESCE(engine, ''), "+
		"COALESCE(create_options, '') LIKE '%partitioned%' FROM information_schema.tables"+inSchema,
		args, func(t *mapping.Table) []any {
			return []any{&t.Schema, &t.Name, &t.Home, &t.View, &t.Engine, &t.Partitioned}
		})
	if err != nil || len(found) == 0 {
		return t, false, err
	}
	if t = found[0]; t.View {
		return t, true, nil
	}
	if t.Columns, err = describeColumns(tx, args); err != nil {
		return t, false, err
	}
	if t.Indexes, err = describeIndexes(tx, args); err != nil {
		return t, false, err
	}
	err = tx.Raw(triggersQuery, t.Schema, t.Name).Scan(&t.Triggers).Error
	if err == nil && len(t.Triggers) == 0 {
		err = tx.Raw(triggersUnread, t.Schema, t.Schema, t.Name).Row().Scan(&t.TriggersUnread)
	}
	return t, err == nil, err
}

// triggersQuery reads the triggers that an UPDATE of a table fires. MySQL 9.7 and newer fire those of the tables with a foreign key to it that cascades,
// if enable_cascade_triggers says so. A close changes no primary key.
const triggersQuery = "SELECT trigger_name FROM information_schema.triggers JOIN (SELECT ? AS at, ? AS name) AS oc_table" +
	" WHERE event_manipulation = 'UPDATE' AND (event_object_schema = at AND event_object_table = name" +
	" /*!90700 OR @@enable_cascade_triggers AND EXISTS (SELECT 1 FROM information_schema.referential_constraints r" +
	" JOIN information_schema.key_column_usage k USING (constraint_schema, constraint_name)" +
	" WHERE r.unique_constraint_schema = at AND r.referenced_table_name = name AND r.update_rule IN ('CASCADE', 'SET NULL')" +
	" AND r.constraint_schema = event_object_schema AND r.table_name = event_object_table AND NOT EXISTS (SELECT 1 FROM information_schema.statistics" +
	" WHERE table_schema = at AND table_name = name AND index_name = 'PRIMARY' AND column_name = k.referenced_column_name)) */)" +
	" ORDER BY trigger_name"

// executedTriggers is Dialect.Triggers of MariaDB: how many triggers this connection has executed. It costs a fifth of looking up the
// triggers of each table, which waits for the other transactions on it. On MySQL it is 1: nothing tells there, so each close looks at the stock.
func executedTriggers([]string) string {
	return "1 /*M!100600 * COALESCE((SELECT CAST(variable_value AS SIGNED) FROM information_schema.session_status" +
		" WHERE variable_name = 'EXECUTED_TRIGGERS'), 1) */"
}

// triggersUnread asks whether no grant lets this user see the triggers of a table: TRIGGER, or on
// MariaDB also UPDATE. It does not know grants through a role.
const triggersUnread = "SELECT COUNT(*) = 0 FROM (" +
	"SELECT grantee, privilege_type FROM information_schema.user_privileges" +
	" UNION ALL SELECT grantee, privilege_type FROM information_schema.schema_privileges WHERE ? LIKE table_schema" +
	" UNION ALL SELECT grantee, privilege_type FROM information_schema.table_privileges WHERE table_schema = ? AND table_name = ?" +
	") AS oc_all WHERE REPLACE(grantee, CHAR(39), '') = CURRENT_USER()" +
	" AND (privilege_type = 'TRIGGER' OR privilege_type = 'UPDATE' AND VERSION() LIKE '%MariaDB%')"

// keptColumn writes what a MODIFY of a column has to repeat, or it is lost: its default, its comment, and that it is invisible. MariaDB has a default
// as an expression, and MySQL that of a constant without quotes.
const keptColumn = "CONCAT(CASE WHEN column_default IS NULL THEN ''" +
	" WHEN VERSION() LIKE '%MariaDB%' OR LOWER(column_default) LIKE 'current_timestamp%' OR data_type = 'bit'" +
	" THEN CONCAT(' DEFAULT ', column_default)" +
	" WHEN LOWER(extra) LIKE '%default_generated%' THEN CONCAT(' DEFAULT (', REPLACE(column_default, CONCAT(CHAR(92), CHAR(39)), CHAR(39)), ')')" +
	" ELSE CONCAT(' DEFAULT ', QUOTE(column_default)) END," +
	" CASE WHEN LOWER(extra) LIKE '%invisible%' THEN ' INVISIBLE' ELSE '' END," +
	" CASE WHEN column_comment = '' THEN '' ELSE CONCAT(' COMMENT ', QUOTE(column_comment)) END)"

// columnsQuery reads the columns of a table. The default of a column that is the time of the INSERT has
// several spellings in MySQL and MariaDB.
const columnsQuery = "SELECT LOWER(column_name) AS name, LOWER(data_type) AS type, column_type AS definition, COALESCE(datetime_precision, 0) AS digits," +
	" COALESCE(character_maximum_length, 0) AS length, COALESCE(collation_name, '') AS collation, is_nullable = 'YES' AS nullable," +
	" is_nullable = 'YES' OR column_default IS NOT NULL AS `default`, LOWER(extra) LIKE '%on update%' AS on_update, " +
	"LOWER(extra) LIKE '%auto_increment%' AS numbered," +
	" COALESCE(LOWER(column_default) REGEXP" +
	" '^[(]?(current_timestamp|now|localtime|localtimestamp|utc_timestamp|unix_timestamp)([(][0-9]*[)])?[)]?$', 0) AS default_now," +
	" LOWER(extra) REGEXP 'virtual generated|stored generated|persistent' AS `generated`, LOWER(COALESCE(generation_expression, '')) AS expression, " +
	keptColumn + " AS kept," +
	" COALESCE(refers_to, '') AS refers_to FROM information_schema.columns" +
	" LEFT JOIN (SELECT LOWER(column_name) AS referring, MIN(referenced_table_name) AS refers_to FROM information_schema.key_column_usage" + inSchema +
	" AND referenced_table_name IS NOT NULL GROUP BY LOWER(column_name)) AS oc_keys ON referring = LOWER(column_name)" + inSchema

func describeColumns(tx *gorm.DB, args []any) (map[string]mapping.Column, error) {
	var all []struct {
		Name string
		mapping.Column
	}
	err := tx.Raw(columnsQuery, slices.Concat(args, args)...).Scan(&all).Error
	columns := map[string]mapping.Column{}
	for _, c := range all {
		columns[c.Name] = c.Column
	}
	for name, c := range columns {
		expression, moves := expanded(columns, c.Expression)
		c.Expression, c.OnUpdate = expression, c.OnUpdate || moves
		columns[name] = c
	}
	return columns, err
}

// expanded adds to an expression those of the generated columns that it names. moves reports whether each UPDATE sets one of all these columns.
func expanded(columns map[string]mapping.Column, expression string) (all string, moves bool) {
	all = expression
	for name, c := range columns {
		if strings.Contains(expression, "`"+name+"`") {
			below, moved := expanded(columns, c.Expression)
			all, moves = all+" "+below, moves || moved || c.OnUpdate
		}
	}
	return all, moves
}

// usedIndexes holds conditions on information_schema.statistics that select indexes in use, by
// the column that they need: MySQL has invisible indexes, MariaDB ignored ones.
var usedIndexes = map[string]string{"IS_VISIBLE": " AND is_visible = 'YES'", "IGNORED": " AND ignored = 'NO'"}

// describeIndexes leaves out indexes that the database does not use, and those of words and of places.
func describeIndexes(tx *gorm.DB, args []any) ([]mapping.Index, error) {
	var of []string
	err := tx.Raw("SELECT UPPER(column_name) FROM information_schema.columns WHERE table_schema = 'information_schema'" +
		" AND table_name = 'STATISTICS'").Scan(&of).Error
	if err != nil {
		return nil, err
	}
	used := ""
	for _, column := range of {
		used += usedIndexes[column]
	}
	var rows []mapping.IndexColumn
	err = tx.Raw("SELECT index_name AS name, non_unique = 0 AS once, CONCAT(LOWER(COALESCE(column_name, '')), "+
		"COALESCE(CONCAT('(', sub_part, ')'), ''), IF(collation = 'D', ' DESC', '')) AS col"+
		" FROM information_schema.statistics"+inSchema+used+" AND index_type = 'BTREE' ORDER BY index_name, seq_in_index", args...).Scan(&rows).Error
	return mapping.Indexes(rows), err
}

// mysqlLockName is the name of a lock on MySQL. It includes the database's name, since a lock's name is global to
// the server. It is a part of a hash, since a name has at most 64 characters. MySQL 9.6 and newer have no SHA1 and MD5.
const mysqlLockName = "CONCAT('orderclose.', LEFT(SHA2(CONCAT_WS('.', DATABASE(), ?), 256), 40))"

var mysqlLock = lockStatements{
	Begin:   "START TRANSACTION",
	Take:    "SELECT COALESCE(GET_LOCK(" + mysqlLockName + ", 0), 0)",
	Held:    "SELECT COALESCE(IS_USED_LOCK(" + mysqlLockName + ") = CONNECTION_ID(), 0)",
	Release: "DO RELEASE_ALL_LOCKS()",
}
