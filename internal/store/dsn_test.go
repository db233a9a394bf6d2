package store_test

import (
	"net"
	"strings"
	"testing"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store"
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
	} {
		s, err := store.Open(store.Options{DSN: dsn})
		if err == nil {
			err = s.Ping(t.Context())
			_ = s.Close()
		}
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("DSN %q: error %v; want one without the password", dsn, err)
		}
	}
}

func TestOpen_NeedsNoServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // a port without a listener
	must(t, err)
	must(t, l.Close())
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
		if strings.Contains(err.Error(), "secret") {
			t.Errorf("the error shows the password: %v", err)
		}
	}
}
