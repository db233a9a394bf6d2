package store_test

import (
	"crypto/tls"
	"net"
	"strings"
	"testing"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

func TestOpen_BadDSNNeverShowsThePassword(t *testing.T) {
	for _, dsn := range []string{
		"",
		"root:secret@localhost",
		"root:secret@tcp(localhost:3306)/",
		"root:sec/secret@tcp(localhost:3306)",
		"root:secret@tcp(localhost:3306/db",
		"root:secret@tcp(localhost:3306)/db?parseTime=secret",
		"root:secret@tcp(localhost:3306)/db%zzsecret",
		"root:secret@secret(localhost)/db?tls=secret",
		"mysql://root:secret@localhost:3306/db",
		"root:secret@/db?collation=big5_chinese_ci&time_zone=%zzsecret",
		"tcp(localhost:3306)/db?user=root&password=secret",
		"jdbc:mysql://localhost:3306/db?user=root&password=secret",
	} {
		s, err := store.Open(store.Options{DSN: dsn})
		if err == nil {
			err = s.Ping(t.Context())
			_ = s.Close()
		}
		expect.That(t, err != nil && !strings.Contains(err.Error(), "secret"), "DSN %q: error %v; want one without the password", dsn, err)
	}
}

// A connection in another charset would let an order id end the quotes of an argument.
func TestOpen_RefusesADSNThatIsNotSafe(t *testing.T) {
	const fix = "write tls=true, and name the CA of the server's certificate in ORDERCLOSE_DB_TLS_CA_FILE"
	files := &tls.Config{}
	for _, row := range []struct {
		parameters string
		tls        *tls.Config
		want       string // in the error; "": none
	}{
		{"", nil, ""},
		{"?tls=false", nil, ""},
		{"?tls=true", nil, ""},
		{"?tls=true", files, ""},
		{"", files, ""},
		{"?tls=skip-verify", nil, "has tls=skip-verify, which accepts any server: " + fix},
		{"?tls=preferred", nil, "with which a connection may be without encryption: " + fix},
		{"?tls=true&allowFallbackToPlaintext=true", files, "with which a connection may be without encryption: " + fix},
		{"?tls=false", files, "remove the parameter"},
		{"?tls=skip-verify", files, "accepts any server"},
		{"?allowCleartextPasswords=true", nil, "sends the password readable"},
		{"?allowCleartextPasswords=true&tls=true", nil, ""},
		{"?charset=utf8mb4&collation=utf8mb4_unicode_ci", nil, ""},
		{"?charset=gbk", nil, "another charset"},
		{"?charset=utf8mb4,gbk", nil, "another charset"},
		{"?collation=gbk_chinese_ci", nil, "another charset"},
		{"?character_set_client=gbk", nil, "another charset"},
		{"?wait_timeout=9%2Ccharacter_set_client%3Dgbk", nil, "another charset"},
		{"?names=gbk", nil, "another charset"},
	} {
		s, err := store.Open(store.Options{DSN: "root@tcp(localhost:3306)/db" + row.parameters, TLS: row.tls})
		if err == nil {
			_ = s.Close()
		}
		expect.That(t, (err == nil) == (row.want == "") && (err == nil || strings.Contains(err.Error(), row.want)),
			"%q with files %v: error %v, want %q", row.parameters, row.tls != nil, err, row.want)
	}
}

func TestOpen_NeedsNoServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // a port without a listener
	must.Do(t, err)
	must.Do(t, l.Close())
	s := open(t, store.Options{DSN: "root:secret@tcp(" + l.Addr().String() + ")/db"})
	for _, err := range []error{
		s.Ping(t.Context()), s.Migrated(t.Context()), s.Migrate(t.Context()),
		func() error { _, err := s.Now(t.Context()); return err }(),
		func() error {
			_, err := s.CloseOrders(t.Context(), orderclose.PathPipeline, []orderclose.CloseRequest{{OrderID: "a"}})
			return err
		}(),
	} {
		wantError(t, err, orderclose.ErrUnavailable)
		expect.That(t, !strings.Contains(err.Error(), "secret"), "the error shows the password: %v", err)
	}
}

func TestWarning_NamesAPasswordThatANetworkSees(t *testing.T) {
	for dsn, want := range map[string]bool{
		"u:p@tcp(db.internal:3306)/shop": true, "u:p@tcp(10.0.0.7:3306)/shop": true, "u:p@tcp(db.internal:3306)/shop?tls=true": false,
		"u@tcp(db.internal:3306)/shop": false, "u:p@tcp(127.0.0.1:3306)/shop": false, "u:p@tcp(localhost:3306)/shop": false, "u:p@unix(/run/mysqld.sock)/shop": false,
	} {
		warning := open(t, store.Options{DSN: dsn}).Warning()
		expect.That(t, (warning != "") == want && !strings.Contains(warning, "u:p"), "%s: %q", dsn, warning)
	}
}
