package payments

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/orderclose/orderclose"
)

// SQL returns References that a query of the shop's database reads. The query returns an order id and a
// reference in each row, and has one (?) in place of the list of order ids:
//
//	SELECT order_id, session_id FROM payments WHERE order_id IN (?)
//
// A reference that is NULL or empty is a payment whose id the shop does not know yet. Let db be the primary: a
// replica that lags does not know the newest payments. SQL returns an error if the query has no (?), or several.
func SQL(db *sql.DB, query string) (References, error) {
	if strings.Count(query, "(?)") != 1 || strings.Count(query, "?") != 1 {
		return nil, errors.New("the query must have one (?) in place of the order ids, such as: SELECT order_id, session_id FROM payments WHERE order_id IN (?)")
	}
	return func(ctx context.Context, ids []string) (map[string][]string, error) {
		references, args := map[string][]string{}, make([]any, len(ids))
		if len(ids) == 0 {
			return references, nil
		}
		for i, id := range ids {
			args[i] = id
		}
		list := "(?" + strings.Repeat(",?", len(ids)-1) + ")"
		rows, err := db.QueryContext(ctx, strings.Replace(query, "(?)", list, 1), args...)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", orderclose.ErrUnavailable, err)
		}
		defer rows.Close()
		if columns, _ := rows.Columns(); len(columns) != 2 {
			return nil, fmt.Errorf("%w: the query must return an order id and a reference, not %d columns", orderclose.ErrUnavailable, len(columns))
		}
		for rows.Next() {
			var id, reference sql.NullString
			if err := rows.Scan(&id, &reference); err != nil {
				return nil, fmt.Errorf("%w: %w", orderclose.ErrUnavailable, err)
			}
			// Otherwise an order would seem to have no payment, and would be closed. It alone is at fault.
			if !slices.Contains(ids, id.String) {
				return nil, fmt.Errorf("the query returned order %.80q, which is none of the orders of the question: "+
					"let the first column be the order id, exactly as orderclose knows it", id.String)
			}
			references[id.String] = append(references[id.String], strings.TrimSpace(reference.String))
		}
		if err := rows.Err(); err != nil {
			return nil, fmt.Errorf("%w: %w", orderclose.ErrUnavailable, err)
		}
		return references, nil
	}, nil
}
