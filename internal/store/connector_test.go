package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"testing"

	"github.com/orderclose/orderclose"
)

// zoned is a server whose sessions are off seconds away from UTC, whatever the DSN says.
type zoned struct {
	scripted
	off  int64
	read bool
}

func (z *zoned) Connect(context.Context) (driver.Conn, error) { return &zoned{off: z.off}, nil }

func (z *zoned) QueryContext(context.Context, string, []driver.NamedValue) (driver.Rows, error) {
	return z, nil
}

func (z *zoned) Columns() []string { return []string{"off"} }

func (z *zoned) Next(dest []driver.Value) error {
	if z.read {
		return io.EOF
	}
	dest[0], z.read = z.off, true
	return nil
}

func TestConnect_RefusesASessionThatIsNotInUTC(t *testing.T) {
	for off, want := range map[int64]error{0: nil, 8 * 3600: ErrZone, -5 * 3600: ErrZone} {
		db := sql.OpenDB(utcConnector{&zoned{off: off}})
		err := db.PingContext(t.Context())
		if !errors.Is(err, want) || (want != nil && !errors.Is(err, orderclose.ErrUnavailable)) {
			t.Errorf("a session %d s off UTC: %v; want %v", off, err, want)
		}
		_ = db.Close()
	}
}
