package db

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
	"github.com/orderclose/orderclose/internal/testkit/expect"
)

// zoned is a server whose sessions are off seconds away from UTC, whatever the DSN says.
type zoned struct {
	scripted
	off            int64
	version, wrong string
	read           bool
}

func (z *zoned) Connect(context.Context) (driver.Conn, error) {
	return &zoned{off: z.off, version: z.version, wrong: z.wrong}, nil
}

func (z *zoned) QueryContext(context.Context, string, []driver.NamedValue) (driver.Rows, error) {
	return z, nil
}

func (z *zoned) Columns() []string { return []string{"off"} }

func (z *zoned) Next(dest []driver.Value) error {
	if z.read {
		return io.EOF
	}
	dest[0], dest[1], dest[2], z.read = z.off, []byte(z.version), []byte(z.wrong), true
	return nil
}

func TestConnect_RefusesASessionThatIsNotInUTC(t *testing.T) {
	for off, want := range map[int64]error{0: nil, 8 * 3600: ErrZone, -5 * 3600: ErrZone} {
		db := sql.OpenDB(CheckedConnector{&zoned{off: off, version: "8.0.36"}, checkSession})
		err := db.PingContext(t.Context())
		expect.That(t, errors.Is(err, want) && (want == nil || errors.Is(err, orderclose.ErrUnavailable)),
			"a session %d s off UTC: %v; want %v", off, err, want)
		_ = db.Close()
	}
}

func TestConnect_RefusesAServerThatDoesNotFit(t *testing.T) {
	for want, z := range map[string]*zoned{
		"lacks SKIP LOCKED": {version: "10.5.29-MariaDB"},
		"sql_select_limit":  {version: "8.0.36", wrong: "sql_select_limit"},
	} {
		db := sql.OpenDB(CheckedConnector{z, checkSession})
		err := db.PingContext(t.Context())
		expect.That(t, errors.Is(err, ErrServer) && errors.Is(err, orderclose.ErrUnavailable) && !Passes(err) && strings.Contains(err.Error(), want),
			"%v; want an error about %s that does not end by itself", err, want)
		_ = db.Close()
	}
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
		expect.That(t, errors.Is(err, row.err) && strings.HasPrefix(err.Error(), row.want),
			"%v, TLS %v: got\n%v\nwant\n%s", row.err, row.tls != nil, err, row.want)
	}
}
