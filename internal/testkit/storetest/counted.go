package storetest

import (
	"bytes"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/orderclose/orderclose/internal/testkit/must"
)

// Address returns the address of the server of a DSN.
func Address(t *testing.T, dsn string) string {
	t.Helper()
	if strings.HasPrefix(dsn, "postgres:") {
		u := must.Get(url.Parse(dsn))(t)
		return u.Host
	}
	cfg := must.Get(mysql.ParseDSN(dsn))(t)
	return cfg.Addr
}

// At returns the DSN with another address of the server.
func At(t *testing.T, dsn, addr string) string {
	t.Helper()
	return strings.Replace(dsn, Address(t, dsn), addr, 1)
}

// Counted returns a DSN of the same database, and a function that counts how often one of the texts was sent on connections of that
// DSN, in either direction.
func Counted(t *testing.T, dsn string, texts ...string) (counted string, count func() int64) {
	t.Helper()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	c := &counter{to: Address(t, dsn), texts: texts}
	c.all.Go(func() { c.accept(l) })
	t.Cleanup(func() {
		must.Do(t, l.Close())
		c.all.Wait()
	})
	return At(t, dsn, l.Addr().String()), c.n.Load
}

// counter forwards connections to a server, and counts texts.
type counter struct {
	to    string
	texts []string
	n     atomic.Int64
	all   sync.WaitGroup
}

func (c *counter) accept(l net.Listener) {
	for {
		client, err := l.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", c.to)
		if err != nil {
			_ = client.Close()
			continue
		}
		forward := func(to io.Writer, from io.Reader) {
			_, _ = io.Copy(io.MultiWriter(c, to), from)
			_, _ = client.Close(), server.Close()
		}
		c.all.Go(func() { forward(server, client) })
		c.all.Go(func() { forward(client, server) })
	}
}

// Write counts the texts in bytes that were sent. A text that was cut in two is not counted: statements and errors are short.
func (c *counter) Write(b []byte) (int, error) {
	for _, text := range c.texts {
		c.n.Add(int64(bytes.Count(b, []byte(text))))
	}
	return len(b), nil
}
