package postgres

import (
	"context"
	"encoding/json"
	"strings"

	"gorm.io/gorm"

	"github.com/orderclose/orderclose/internal/store/mapping"
)

// tableQuery reads the id, the schema, the name and the kind of a table.
const tableQuery = "SELECT c.oid AS oid, n.nspname AS schema, c.relname AS name, n.nspname = current_schema() AS home, " +
	"c.relkind NOT IN ('r', 'p') AS view, c.relkind = 'p' AS partitioned" +
	" FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace" +
	" WHERE n.nspname = COALESCE(NULLIF(?, ''), current_schema()) AND c.relname = ? AND c.relkind IN ('r', 'p', 'v', 'm', 'f')" +
	" AND has_table_privilege(c.oid, 'SELECT')"

// Describe returns the definition of a table of a schema; "": the current one. It returns false if there is no such
// table, or if the user may not read it.
func Describe(tx *gorm.DB, schema, table string) (t mapping.Table, ok bool, err error) {
	var found []struct {
		OID          uint32 `gorm:"column:oid"`
		Schema, Name string
		Home, View   bool
		Partitioned  bool
	}
	if err := tx.Raw(tableQuery, schema, table).Scan(&found).Error; err != nil || len(found) == 0 {
		return t, false, err
	}
	f := found[0]
	t = mapping.Table{Schema: f.Schema, Name: f.Name, Home: f.Home, View: f.View, Partitioned: f.Partitioned, Postgres: true}
	if t.View {
		return t, true, nil
	}
	if t.Columns, err = describeColumns(tx, f.OID); err == nil {
		t.Indexes, err = describeIndexes(tx, f.OID)
	}
	if err == nil { // 16: it fires on UPDATE, as a rule of the type 2
		err = tx.Raw("WITH RECURSIVE links AS (SELECT inhparent AS from_id, inhrelid AS to_id FROM pg_inherits"+
			" UNION ALL SELECT tgrelid, tgconstrrelid FROM pg_trigger g WHERE "+cascades+
			"), written AS (SELECT ?::oid AS id UNION SELECT to_id FROM links JOIN written ON from_id = id)"+
			" SELECT tgname FROM pg_trigger JOIN written ON tgrelid = id WHERE NOT tgisinternal AND tgenabled <> 'D' AND tgtype & 16 <> 0"+
			" UNION SELECT rulename FROM pg_rewrite JOIN written ON ev_class = id WHERE ev_type = '2' ORDER BY 1", f.OID).Scan(&t.Triggers).Error
	}
	return t, err == nil, err
}

// rowSecurityQuery asks whether policies apply to this user on a table. The owner of a table is exempt, unless it forces them.
const rowSecurityQuery = "SELECT row_security_active(c.oid) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace" +
	" WHERE n.nspname = COALESCE(NULLIF(?, ''), current_schema()) AND c.relname = ?"

// cascades is the condition of a row g of pg_trigger that changes the rows of another table, by a foreign key to columns that are no primary key. That
// table may have triggers.
const cascades = `g.tgfoid IN ('"RI_FKey_cascade_upd"'::regproc, '"RI_FKey_setnull_upd"'::regproc, '"RI_FKey_setdefault_upd"'::regproc)` +
	" AND NOT EXISTS (SELECT 1 FROM pg_constraint k JOIN pg_index i ON i.indrelid = g.tgrelid AND i.indisprimary" +
	" WHERE k.oid = g.tgconstraint AND k.confkey <@ i.indkey::int2[])"

// CountTriggers writes an expression: how many of the tables may end with other rows than a statement wrote. Such a table has a trigger of the user,
// a trigger that runs in the commit, a rule, a partition or an heir, or a foreign key cascades from it. A partition, an heir or the table of the foreign
// key may have triggers of its own, and the unique index of a
// table does not cover its heirs. The expression reads one row of the catalog for each table.
func CountTriggers(tables []string) string {
	ids := make([]string, len(tables))
	for i, name := range tables {
		ids[i] = "to_regclass('\"" + strings.ReplaceAll(name, ".", "\".\"") + "\"')"
	}
	return "(SELECT COUNT(*) FROM pg_class c WHERE c.oid IN (" + strings.Join(ids, ", ") + ") AND (c.relhasrules OR c.relhassubclass OR c.relhastriggers" +
		" AND EXISTS (SELECT 1 FROM pg_trigger g WHERE tgrelid = c.oid AND (tginitdeferred OR NOT tgisinternal AND tgenabled <> 'D' OR " + cascades + "))))"
}

// HidesReceipts is an expression: whether row-level security may hide rows that tell what became of a payment. The order's own row may be
// hidden: then there is no such order.
const HidesReceipts = "COALESCE((SELECT bool_or(row_security_active(c.oid)) FROM pg_class c WHERE c.oid IN (to_regclass('receipts'), " +
	"to_regclass('paid_receipts'), to_regclass('late_payments'))), false)"

// RowSecurity reports whether row-level security may hide rows of a table of a schema from this user; schema "": the current one.
func RowSecurity(tx *gorm.DB, schema, table string) (active bool, err error) {
	return active, tx.Raw(rowSecurityQuery, schema, table).Scan(&active).Error
}

// columnsQuery reads the columns of a table. A domain has the type that it is based on. sources has the columns
// from which a generated column is computed.
const columnsQuery = "SELECT a.attname AS name, y.typname AS type, format_type(a.atttypid, a.atttypmod) AS definition, y.typtype = 'e' AS is_enum," +
	" CASE WHEN y.typname IN ('varchar', 'bpchar') THEN GREATEST(a.atttypmod - 4, own.typtypmod - 4, 0) ELSE 0 END AS length," +
	" CASE WHEN y.typname IN ('timestamp', 'timestamptz') THEN COALESCE(NULLIF(GREATEST(a.atttypmod, own.typtypmod), -1), 6) ELSE 0 END AS digits," +
	" CASE WHEN l.collisdeterministic THEN '' ELSE COALESCE(l.collname, '') END AS collation," +
	" NOT a.attnotnull AS nullable, NOT a.attnotnull OR a.atthasdef OR a.attidentity <> '' AS has_default, a.attgenerated <> '' AS generated," +
	" a.attidentity <> '' OR COALESCE(pg_get_expr(d.adbin, d.adrelid), '') LIKE 'nextval(%' AS numbered," +
	" a.attgenerated = '' AND COALESCE(pg_get_expr(d.adbin, d.adrelid), own.typdefault, '')" +
	" ~* '^[(]*(current_timestamp|localtimestamp|now|clock_timestamp|statement_timestamp|transaction_timestamp|timezone)([(]|$)'" +
	" AND COALESCE(pg_get_expr(d.adbin, d.adrelid), own.typdefault) !~ ' [+-] ' AS default_now," + // now() + interval '15 minutes' is not now
	" COALESCE((SELECT json_agg(e.enumlabel ORDER BY e.enumsortorder) FROM pg_enum e WHERE e.enumtypid = y.oid)::text, '[]') AS labels," +
	" COALESCE((SELECT MIN(f.confrelid::regclass::text) FROM pg_constraint f WHERE f.contype = 'f' AND f.conrelid = a.attrelid" +
	" AND a.attnum = ANY (f.conkey)), '') AS refers_to," +
	" COALESCE((SELECT string_agg('`' || lower(s.attname) || '`', ' ') FROM pg_depend p JOIN pg_attribute s ON s.attrelid = p.refobjid" +
	" AND s.attnum = p.refobjsubid" +
	" WHERE a.attgenerated <> '' AND p.classid = 'pg_attrdef'::regclass AND p.objid = d.oid AND p.refobjid = a.attrelid" +
	" AND s.attnum <> a.attnum), '') AS sources" +
	" FROM pg_attribute a JOIN pg_type own ON own.oid = a.atttypid JOIN pg_type y ON y.oid = CASE WHEN own.typtype = 'd' THEN own.typbasetype ELSE own.oid END" +
	" LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum LEFT JOIN pg_collation l ON l.oid = a.attcollation" +
	" WHERE a.attrelid = ? AND a.attnum > 0 AND NOT a.attisdropped"

// types are the names that a mapping knows types by. Other types keep their own names.
var types = map[string]string{
	"int2": "smallint", "int4": "int", "int8": "bigint", "text": "varchar", "numeric": "decimal",
	"float4": "float", "float8": "double", "bool": "boolean", "timestamp": "datetime",
}

func describeColumns(tx *gorm.DB, table uint32) (map[string]mapping.Column, error) {
	var all []struct {
		mapping.Column
		IsEnum, HasDefault bool
		Labels, Sources    string
	}
	if err := tx.Raw(columnsQuery, table).Scan(&all).Error; err != nil {
		return nil, err
	}
	columns := map[string]mapping.Column{}
	for _, c := range all {
		column := c.Column
		column.Default, column.Expression = c.HasDefault, c.Sources
		if known, ok := types[c.Type]; ok {
			column.Type = known
		}
		if c.IsEnum {
			var labels []string
			if err := json.Unmarshal([]byte(c.Labels), &labels); err != nil {
				return nil, err
			}
			for i, label := range labels {
				labels[i] = "'" + strings.ReplaceAll(label, "'", "''") + "'"
			}
			column.Type, column.Definition = "enum", "enum("+strings.Join(labels, ",")+")"
		}
		columns[strings.ToLower(c.Name)] = column
	}
	return columns, nil
}

// primary is a mapping's name of the index of a primary key.
const primary = "PRIMARY"

// indexesQuery reads the columns of the indexes that the database uses. An index on an expression has the
// expression in place of a column.
const indexesQuery = "SELECT CASE WHEN i.indisprimary THEN '" + primary + "' ELSE c.relname END AS name, i.indisunique AS once," +
	" COALESCE(pg_get_expr(i.indpred, i.indrelid), '') AS condition," +
	" lower(COALESCE(a.attname, pg_get_indexdef(i.indexrelid, k.n::int, true))) || CASE WHEN i.indoption[k.n - 1] & 1 = 1 THEN ' DESC' ELSE '' END AS col" +
	" FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid CROSS JOIN LATERAL generate_series(1, i.indnkeyatts) AS k (n)" +
	" LEFT JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[k.n - 1] AND a.attnum > 0" +
	" WHERE i.indrelid = ? AND i.indisvalid AND i.indislive ORDER BY c.relname, k.n"

func describeIndexes(tx *gorm.DB, table uint32) ([]mapping.Index, error) {
	var rows []mapping.IndexColumn
	err := tx.Raw(indexesQuery, table).Scan(&rows).Error
	return mapping.Indexes(rows), err
}

// ScannedTable asks the database how it would execute a statement in a transaction; see inTx. It
// returns the name of a table that it would read as a whole, because no index fits; empty: there is none.
func ScannedTable(ctx context.Context, db *gorm.DB, query string) (scanned string, err error) {
	err = db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		var plan string
		if err := tx.Statement.ConnPool.QueryRowContext(ctx, "EXPLAIN (FORMAT JSON) "+query).Scan(&plan); err != nil {
			return err
		}
		var parsed []struct{ Plan planStep }
		if err := json.Unmarshal([]byte(plan), &parsed); err != nil {
			return err
		}
		for _, p := range parsed {
			scanned = p.Plan.scanned()
		}
		return nil
	})
	return scanned, err
}

// planStep is a step of a plan, as EXPLAIN writes it.
type planStep struct {
	Type  string `json:"Node Type"`
	Table string `json:"Relation Name"`
	Plans []planStep
}

func (p planStep) scanned() string {
	if p.Type == "Seq Scan" {
		return p.Table
	}
	for _, of := range p.Plans {
		if table := of.scanned(); table != "" {
			return table
		}
	}
	return ""
}
