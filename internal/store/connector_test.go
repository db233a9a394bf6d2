package store

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/orderclose/orderclose"
)

// zoned is a server whose sessions are off seconds away from UTC, whatever the DSN says.
type zoned struct {
	scripted
	off     int64
	version string
	answer  driver.Value // nil: it was read
}

func (z *zoned) Connect(context.Context) (driver.Conn, error) {
	return &zoned{off: z.off, version: z.version}, nil
}

func (z *zoned) QueryContext(_ context.Context, query string, _ []driver.NamedValue) (driver.Rows, error) {
	if z.answer = z.off; query == "SELECT VERSION()" {
		z.answer = []byte(z.version)
	}
	return z, nil
}

func (z *zoned) Columns() []string { return []string{"off"} }

func (z *zoned) Next(dest []driver.Value) error {
	if z.answer == nil {
		return io.EOF
	}
	dest[0], z.answer = z.answer, nil
	return nil
}

func TestConnect_RefusesASessionThatIsNotInUTC(t *testing.T) {
	for off, want := range map[int64]error{0: nil, 8 * 3600: ErrZone, -5 * 3600: ErrZone} {
		db := sql.OpenDB(utcConnector{&zoned{off: off, version: "8.0.36"}, checkSession})
		err := db.PingContext(t.Context())
		if !errors.Is(err, want) || (want != nil && !errors.Is(err, orderclose.ErrUnavailable)) {
			t.Errorf("a session %d s off UTC: %v; want %v", off, err, want)
		}
		_ = db.Close()
	}
}

func TestConnect_RefusesAServerWithoutSkipLocked(t *testing.T) {
	db := sql.OpenDB(utcConnector{&zoned{version: "10.5.29-MariaDB"}, checkSession})
	err := db.PingContext(t.Context())
	if !errors.Is(err, ErrServer) || !errors.Is(err, orderclose.ErrUnavailable) || Passes(err) {
		t.Errorf("%v; want an error that does not end by itself", err)
	}
	_ = db.Close()
}

// refusing is a server that refuses connections.
type refusing struct {
	driver.Connector
	err error
}

func (r refusing) Connect(context.Context) (driver.Conn, error) { return nil, r.err }

func TestConnect_SaysWhatToDoAboutTLS(t *testing.T) {
	certified := &tls.Config{Certificates: []tls.Certificate{{Leaf: &x509.Certificate{Subject: pkix.Name{CommonName: "shop"}}}}}
	const failed, refused = "TLS to the database server failed; docs/security.md, TLS, ", "the database server refuses the user; check user and password, and TLS"
	for _, row := range []struct {
		err  error
		tls  *tls.Config
		want string // the beginning of the error
	}{
		{&mysql.MySQLError{Number: 3159}, nil, failed},
		{&mysql.MySQLError{Number: 1045}, nil, refused},
		{&mysql.MySQLError{Number: 1045}, certified, refused},
		{mysql.ErrNoTLS, certified, failed},
		{mysql.ErrInvalidConn, certified, failed},
		{driver.ErrBadConn, certified, failed},
		{errors.New("bad connection"), certified, failed},
		{syscall.ECONNRESET, certified, failed},
		{mysql.ErrInvalidConn, &tls.Config{}, mysql.ErrInvalidConn.Error()},
		{mysql.ErrInvalidConn, nil, mysql.ErrInvalidConn.Error()},
		{&net.OpError{Op: "remote error", Err: errors.New("tls: bad certificate")}, certified, failed},
	} {
		_, err := tlsConnector{refusing{err: row.err}, row.tls}.Connect(t.Context())
		if !errors.Is(err, row.err) || !strings.HasPrefix(err.Error(), row.want) {
			t.Errorf("%v, TLS %v: got\n%v\nwant\n%s", row.err, row.tls != nil, err, row.want)
		}
	}
}
