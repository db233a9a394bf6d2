package storetest

import (
	"net/url"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// Through returns a proxy to the server of a DSN, and a DSN that uses the proxy.
func Through(t *testing.T, dsn string) (*testkit.Proxy, string) {
	t.Helper()
	server := ""
	if strings.HasPrefix(dsn, "postgres:") {
		server = must.Get(url.Parse(dsn))(t).Host
	} else {
		server = must.Get(mysql.ParseDSN(dsn))(t).Addr
	}
	proxy := must.Get(testkit.NewProxy(server))(t)
	t.Cleanup(func() { must.Do(t, proxy.Close()) })
	return proxy, strings.Replace(dsn, server, proxy.Addr(), 1)
}

// Counted returns a DSN of the same database, and a function that counts how often one of the texts was sent on connections of that
// DSN, in either direction.
func Counted(t *testing.T, dsn string, texts ...string) (counted string, count func() int64) {
	t.Helper()
	proxy, counted := Through(t, dsn)
	return counted, proxy.Count(texts...)
}
