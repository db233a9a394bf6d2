package db

import (
	"errors"
	"strings"
	"testing"

	"github.com/orderclose/orderclose/internal/testkit/expect"
)

func TestCheckVersion_RefusesServersOnWhichACloseMayGoWrong(t *testing.T) {
	for version, refused := range map[string]string{
		"10.11.14-MariaDB-0+deb12u2":     "",
		"5.5.5-10.6.1-MariaDB-log":       "",
		"5.5.5-10.5.29-MariaDB":          "use MariaDB 10.6 or newer",
		"10.5.29-MariaDB":                "lacks SKIP LOCKED: use MariaDB 10.6 or newer",
		"11.0.1-MariaDB":                 "",
		"8.0.15":                         "",
		"8.4.3-commercial":               "",
		"9.1.0":                          "",
		"8.0.36-28":                      "", // Percona Server
		"5.7.44-log":                     "use MySQL 8.0 or newer",
		"8.0.11-TiDB-v8.5.6":             "locks nothing",
		"8.0.30-Vitess":                  "shards one by one",
		"5.7.25-OceanBase_CE-v4.2.1.0":   "",
		"a version that nobody can read": "",
	} {
		err := checkVersion(version)
		expect.That(t, (err != nil) == (refused != "") && (err == nil || errors.Is(err, ErrServer) && strings.Contains(err.Error(), refused)),
			"%s: %v; want %q", version, err, refused)
	}
}
