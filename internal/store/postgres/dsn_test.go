package postgres

import (
	"crypto/tls"
	"strings"
	"testing"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

func TestIsDSN_KnowsBothForms(t *testing.T) {
	for dsn, want := range map[string]bool{
		"postgres://shop:pw@db/shop": true, "postgresql://db/shop": true, " host=db dbname=shop": true,
		"user = shop password = 'a b' host = db": true, "dbname=shop": true,
		"shop:pw@tcp(db:3306)/shop": false, "/shop": false, "": false, "root@tcp(db)/shop?user=x": false, "host:a=b@tcp(db)/shop": false,
	} {
		expect.That(t, IsDSN(dsn) == want, "%q: %v", dsn, !want)
	}
}

func TestParseDSN_ErrorsNeverShowThePassword(t *testing.T) {
	for dsn, want := range map[string]string{
		"postgres://shop:sec/secret@db/shop?sslmode=disable":          "cannot be read",
		"postgres://shop:se?secret@db/shop":                           "",
		"postgres://shop:se#secret@db/shop":                           "",
		"postgres://shop:%zzsecret@db/shop":                           "%-escapes",
		"postgres://shop:sec:secret@db:54x32/shop":                    "",
		"postgres://shop@db/shop?sslmode=disable&pwd=secret":          "a parameter other than host,",
		"postgres://shop@db/shop?sslmode=disable&secret=1":            "a parameter other than host,",
		"postgres://shop:secret@db/shop?sslmode=disable&options=-cx":  "ALTER ROLE user SET name =",
		"postgres://shop:secret@db/shop?sslmode=secret":               "sslmode is unknown",
		"postgres://shop:secret@db/shop?connect_timeout=secret":       "connect_timeout is no number",
		"postgres://shop:secret@db/shop?target_session_attrs=secret":  "target_session_attrs is unknown",
		"postgres://shop:secret@db/shop?sslrootcert=/secret":          "the file of sslrootcert cannot be read",
		"postgres://shop:secret@db/shop?servicefile=/secret&service=": "a parameter other than host,",
		"postgres://shop:secret@db?sslmode=disable":                   "names no database",
		"host=db user=shop password=a secret dbname=shop":             "cannot be read",
		"host=db user=shop password='secret dbname=shop":              "cannot be read",
		"host=db user=shop password=secret sslmode=disable":           "names no database",
		"host=db user=shop password=secret dbname=shop":               "sslmode=prefer",
	} {
		_, err := ParseDSN(dsn, nil)
		expect.That(t, err != nil && !strings.Contains(err.Error(), "secret") && strings.Contains(err.Error(), want),
			"%q: error %v; want %q, without the password", dsn, err, want)
	}
}

func TestParseDSN_NeverConnectsWithoutVerifiedTLSUnlessToldTo(t *testing.T) {
	const fix = "write sslmode=verify-full, and name the CA of the server's certificate in ORDERCLOSE_DB_TLS_CA_FILE"
	files := &tls.Config{MinVersion: tls.VersionTLS13}
	for _, row := range []struct {
		dsn       string
		tls       *tls.Config
		want      string // in the error; "": none
		encrypted bool
		warning   string
	}{
		{"postgres://u:p@db/shop", nil, "sslmode=prefer, which is the default, or allow, with which a connection may be without encryption: " + fix, false, ""},
		{"postgres://u:p@db/shop?sslmode=allow", nil, "without encryption", false, ""},
		{"postgres://u:p@db/shop?sslmode=require", nil, "sslmode=require, which accepts any server: " + fix, false, ""},
		{"postgres://u:p@db/shop?sslmode=verify-ca", nil, "", true, ""},
		{"postgres://u:p@db/shop?sslmode=verify-full", nil, "", true, ""},
		{"postgres://u:p@a,db/shop?sslmode=verify-full", nil, "", true, ""},
		{"postgres://u:p@127.0.0.1,db/shop", nil, "without encryption", false, ""},
		{"postgres://u:p@db/shop?sslmode=disable", nil, "", false, "between this process and db can read the orders"},
		{"postgres://u@db/shop?sslmode=disable", nil, "", false, ""},
		{"postgres://u:p@localhost/shop?sslmode=disable", nil, "", false, ""},
		{"postgres://u:p@[::1]/shop", nil, "", true, ""},
		{"host=/run/postgresql user=u dbname=shop", nil, "", false, ""},
		{"postgres://u:p@db/shop", files, "", true, ""},
		{"postgres://u:p@a,db/shop?sslmode=verify-full", files, "", true, ""},
		{"postgres://u:p@db/shop?sslmode=disable", files, "remove the parameters", false, ""},
		{"postgres://u:p@db/shop?sslmode=prefer", files, "remove the parameters", false, ""},
		{"postgres://u:p@db/shop?sslmode=verify-ca", files, "remove the parameters", false, ""},
	} {
		c, err := ParseDSN(row.dsn, row.tls)
		expect.That(t, (err == nil) == (row.want == "") && (err == nil || strings.Contains(err.Error(), row.want)),
			"%s with files %v: error %v, want %q", row.dsn, row.tls != nil, err, row.want)
		if err != nil {
			continue
		}
		if (c.conn.TLSConfig != nil) != row.encrypted || (c.Warning() == "") != (row.warning == "") || !strings.Contains(c.Warning(), row.warning) {
			t.Errorf("%s: TLS %v, warning %q", row.dsn, c.conn.TLSConfig, c.Warning())
		}
		for _, w := range c.conn.Fallbacks {
			expect.That(t, row.tls == nil || w.TLSConfig.MinVersion == tls.VersionTLS13 && w.TLSConfig.ServerName == w.Host,
				"%s: %s has %+v", row.dsn, w.Host, w.TLSConfig)
		}
	}
}

// A server parses what a session's parameters say, and a pooler refuses what it does not know.
func TestParseDSN_ForcesSettings(t *testing.T) {
	t.Setenv("PGOPTIONS", "-c timezone=Asia/Shanghai")
	t.Setenv("PGTZ", "Asia/Shanghai")
	c := must.Get(ParseDSN("postgres://u:p@localhost:6432/shop?search_path=shop", nil))(t)
	got := c.conn.RuntimeParams
	if len(got) != 6 || got["datestyle"] != "ISO" || got["timezone"] != "UTC" || got["search_path"] != "shop" || got["standard_conforming_strings"] != "on" ||
		got["client_encoding"] != "UTF8" || got["application_name"] != "orderclose" {
		t.Errorf("the session begins with %v", got)
	}
	if c.Name() != "localhost:6432/shop" || c.conn.ConnectTimeout != dialTimeout || c.Limit != answerLimit || c.Unbounded().Limit != 0 ||
		c.Unbounded().lockWait != tableTimeout {
		t.Errorf("%s: %v, %v", c.Name(), c.conn.ConnectTimeout, c.Limit)
	}
	for accepted, want := range map[bool]bool{false: true, true: false} {
		if c.HidesRows = accepted; strings.Contains(c.inTx(), "SET LOCAL row_security = off") != want {
			t.Errorf("with hidden rows accepted %v: %s", accepted, c.inTx())
		}
	}
}
