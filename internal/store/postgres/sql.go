package postgres

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/orderclose/orderclose/internal/store/mapping"
)

// Translate returns a statement of the store as PostgreSQL takes it: names in double quotes in place of
// backquotes, and $1, $2 and so on in place of each ?. Texts, names and comments in the statement stay as
// they are.
func Translate(query string) string { return translate(query, nil) }

// translate is Translate for a statement with arguments. large reports whether the n-th argument, from 1, is a whole
// number that the type integer cannot hold. Such an argument gets the type bigint. Without a type, the server gives it
// the type of the column that it is compared with. If that is integer, the statement fails.
func translate(query string, large func(n int) bool) string {
	if !strings.ContainsAny(query, "`?") && large == nil {
		return query
	}
	var b strings.Builder
	b.Grow(len(query) + len(query)/4)
	args := 0
	for i := 0; i < len(query); i++ {
		switch c := query[i]; c {
		case '`':
			b.WriteByte('"')
		case '?':
			args++
			placeholder(&b, args, large)
		case '$':
			end := i + 1
			for end < len(query) && '0' <= query[end] && query[end] <= '9' {
				end++
			}
			if n, err := strconv.Atoi(query[i+1 : end]); err == nil {
				placeholder(&b, n, large)
			} else {
				b.WriteByte(c)
			}
			i = end - 1
		case '\'', '"': //mutant:question-in-text
			end := i + 1
			for end < len(query) && query[end] != c { // a doubled quote begins the next text
				end++
			}
			b.WriteString(query[i:min(end+1, len(query))])
			i = end
		case '-':
			end := i + 1
			if strings.HasPrefix(query[i:], "--") {
				if end = strings.IndexByte(query[i:], '\n') + i; end < i {
					end = len(query)
				}
			}
			b.WriteString(query[i:end])
			i = end - 1
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

func placeholder(b *strings.Builder, n int, large func(n int) bool) {
	b.WriteByte('$')
	b.WriteString(strconv.Itoa(n))
	if large != nil && large(n) {
		b.WriteString("::bigint")
	}
}

// DeleteByID returns a DELETE of rows whose ids are the argument, in JSON.
func DeleteByID(table string) string {
	return "DELETE FROM " + table + " WHERE id = ANY (CAST(translate(?, '[]', '{}') AS bigint[]))"
}

// ReleaseStock returns an UPDATE of the stock by n SKUs with their quantities. set and where are its
// assignments and its condition on the rows s and the list v, and sameRow says which belong together.
func ReleaseStock(s *mapping.Stock, n int, set, where, sameRow string) string {
	names, first, more := "sku, quantity", keyTypes[s.SKU.Type], ""
	if s.Location.Column != "" {
		names, first, more = "sku, location, quantity", first+"), CAST(? AS "+keyTypes[s.Location.Type], ", ?"
	}
	return fmt.Sprintf("WITH v (%s) AS (VALUES (CAST(? AS %s), CAST(? AS bigint))%s)", names, first, strings.Repeat(", (?, ?"+more+")", n-1)) +
		fmt.Sprintf(" UPDATE %s AS s SET %s FROM v WHERE %s AND %s", mapping.Quote(s.Table), set, sameRow, where)
}

// Rows writes rows of a width for an INSERT. It sends each column as an array: a list of thousands of values takes the server three times
// as long. Some columns have the same value in all rows, such as the time of the close. Rows sends such a value once, not as an array,
// which saves a tenth of the time of a close. The first column is the key, and always an array. The values are texts, signed numbers and
// times; a column has values of one type.
func Rows(width int, args []any) (list string, of []any) {
	var columns, arrays, names []string
	var values []any
	for i := range width {
		texts := make([]string, 0, len(args)/width)
		for j := i; j < len(args); j += width {
			switch v := reflect.ValueOf(args[j]); {
			case v.Kind() == reflect.String:
				texts = append(texts, v.String())
			case v.CanInt():
				texts = append(texts, strconv.FormatInt(v.Int(), 10))
			default:
				texts = append(texts, args[j].(time.Time).Format(time.RFC3339Nano))
			}
		}
		name, typed := "c"+strconv.Itoa(i), typeOf(args[i])
		if i > 0 && !slices.ContainsFunc(texts, func(text string) bool { return text != texts[0] }) {
			columns, of = append(columns, "CAST(? AS "+typed+")"), append(of, texts[0])
			continue
		}
		columns, names = append(columns, name), append(names, name)
		arrays, values = append(arrays, "CAST(? AS "+typed+"[])"), append(values, texts)
	}
	list = "SELECT " + strings.Join(columns, ", ") + " FROM unnest(" + strings.Join(arrays, ", ") + ") AS v (" + strings.Join(names, ", ") + ")"
	return list, append(of, values...)
}

// typeOf returns the type of values like v.
func typeOf(v any) string {
	switch of := reflect.ValueOf(v); {
	case of.Kind() == reflect.String:
		return "text"
	case of.CanInt():
		return "bigint"
	}
	return "timestamptz"
}

// keyTypes are the types of keys.
var keyTypes = map[mapping.KeyType]string{mapping.Text: "text", mapping.Integer: "bigint", mapping.UUID: "uuid"}

// Distinct returns a query for the values of a column that leads an index, which reads an entry of the
// index for each value: GROUP BY reads all entries.
func Distinct(column, table string) string {
	return fmt.Sprintf("WITH RECURSIVE v (%[1]s) AS ((SELECT %[1]s FROM %[2]s ORDER BY %[1]s LIMIT 1) UNION ALL"+
		" SELECT (SELECT t.%[1]s FROM %[2]s AS t WHERE t.%[1]s > v.%[1]s ORDER BY t.%[1]s LIMIT 1) FROM v WHERE v.%[1]s IS NOT NULL) SELECT %[1]s"+
		" FROM v WHERE %[1]s IS NOT NULL", column, table)
}
