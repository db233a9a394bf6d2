package scenario

import (
	"strings"
	"testing"

	"github.com/orderclose/orderclose/internal/store/postgres"
)

func TestWithDatabase_ChangesOnlyTheDatabase(t *testing.T) {
	for dsn, want := range map[string]string{
		"postgres://u:p%2F@a:1,b:2/shop?sslmode=disable":            "postgres://u:p%2F@a:1,b:2/other?sslmode=disable",
		"postgres://u@localhost?sslmode=disable":                    "postgres://u@localhost/other?sslmode=disable",
		" host=localhost user=u password='a b' dbname=shop port=1 ": "host=localhost user=u password='a b' dbname=shop port=1 dbname=other",
	} {
		got, err := withDatabase(dsn, "other")
		if err != nil || got != want {
			t.Errorf("%q: %q, %v", dsn, got, err)
			continue
		}
		if c, err := postgres.ParseDSN(got, nil); err != nil || !strings.HasSuffix(c.Name(), "/other") {
			t.Errorf("%q: %v", got, err)
		}
	}
	if _, err := withDatabase("postgres://u:%zzsecret@a/shop", "other"); err == nil || strings.Contains(err.Error(), "secret") {
		t.Error(err)
	}
}
