package shopdb

import (
	"context"
	"database/sql"
	"strconv"
	"strings"

	"github.com/orderclose/orderclose/producer"
)

// runner returns what runs the statements of this package. They have a ? for each argument.
func (d dialect) runner(r runner) runner {
	if d.name == producer.Postgres {
		return numbered{r}
	}
	return r
}

// numbered runs statements with $1, $2 and so on in place of each ?.
type numbered struct{ r runner }

func (n numbered) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return n.r.ExecContext(ctx, number(query), args...)
}

func (n numbered) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return n.r.QueryContext(ctx, number(query), args...)
}

func (n numbered) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	return n.r.QueryRowContext(ctx, number(query), args...)
}

// number numbers the arguments. No text in a statement of this package has a question mark.
func number(query string) string {
	var b strings.Builder
	for i, part := range strings.Split(query, "?") {
		if i > 0 {
			b.WriteString("$" + strconv.Itoa(i))
		}
		b.WriteString(part)
	}
	return b.String()
}
