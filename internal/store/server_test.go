package store

import (
	"errors"
	"strings"
	"testing"
)

func TestRecognize_KnowsServersByWhatTheySay(t *testing.T) {
	for _, row := range []struct{ version, want, refused string }{
		{"10.11.14-MariaDB-0+deb12u2", "MariaDB 10.11.14", ""},
		{"5.5.5-10.6.1-MariaDB-log", "MariaDB 10.6.1", ""},
		{"10.5.29-MariaDB", "MariaDB 10.5.29", "lacks SKIP LOCKED: use 10.6 or newer"},
		{"8.0.15", "MySQL 8.0.15", ""},
		{"8.4.3-commercial", "MySQL 8.4.3", ""},
		{"9.1.0", "MySQL 9.1.0", ""},
		{"8.0.36-28", "MySQL 8.0.36", ""}, // Percona Server
		{"5.7.44-log", "MySQL 5.7.44", "use 8.0 or newer"},
		{"8.0.11-TiDB-v8.5.6", "TiDB 8.5.6", "locks nothing"},
		{"8.0.30-Vitess", "Vitess", "shards one by one"},
		{"5.7.25-OceanBase_CE-v4.2.1.0", "OceanBase 4.2.1.0", ""},
		{"PostgreSQL 15.14 (Debian 15.14-0+deb12u1) on x86_64-pc-linux-gnu, compiled by gcc (Debian 12.2.0-14) 12.2.0, 64-bit", "PostgreSQL 15.14", ""},
		{"PostgreSQL 18beta1 on x86_64", "PostgreSQL 18", ""},
	} {
		s, err := recognize(row.version)
		if s.String() != row.want || (err != nil) != (row.refused != "") {
			t.Errorf("%s: %q, %v; want %q", row.version, s, err, row.want)
		}
		if err != nil && (!errors.Is(err, ErrServer) || !strings.Contains(err.Error(), row.refused)) {
			t.Errorf("%s: %v; want %q", row.version, err, row.refused)
		}
	}
}
