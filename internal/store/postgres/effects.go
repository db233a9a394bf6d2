package postgres

import "gorm.io/gorm"

// functionsQuery reads the functions of the triggers of tables, and the functions, that have one of the names,
// except those of the database itself.
const functionsQuery = "SELECT p.proname AS name, p.prosrc AS code, l.lanname AS language FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang" +
	" WHERE p.oid IN (SELECT t.tgfoid FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid WHERE NOT t.tgisinternal AND t.tgenabled <> 'D' AND c.relname IN ?)" +
	" OR p.proname IN ? AND p.pronamespace NOT IN ('pg_catalog'::regnamespace, 'information_schema'::regnamespace)"

// Effects returns the code of the triggers of tables and of the functions that have one of the names, and those
// tables and functions whose changes a rollback may not undo: foreign tables, tables with rules, and functions
// whose code is in another language than SQL or PL/pgSQL.
func Effects(tx *gorm.DB, names []string) (code, lasting []string, err error) {
	var functions []struct{ Name, Code, Language string }
	if err := tx.Raw(functionsQuery, names, names).Scan(&functions).Error; err != nil {
		return nil, nil, err
	}
	for _, f := range functions {
		if code = append(code, f.Code); f.Code == "" || f.Language != "sql" && f.Language != "plpgsql" {
			lasting = append(lasting, "the code of the function "+f.Name+" could not be read")
		}
	}
	var tables []string
	err = tx.Raw("SELECT relname FROM pg_class WHERE relname IN ? AND (relkind = 'f' OR relkind IN ('r', 'p') AND relhasrules) AND relnamespace <> 'pg_catalog'::regnamespace", names).Scan(&tables).Error
	for _, name := range tables {
		lasting = append(lasting, "table "+name+" is a foreign table or has rules")
	}
	return code, lasting, err
}
