package store

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/orderclose/orderclose/internal/store/postgres"
)

// Server is what a database server says of itself.
type Server struct {
	Name    string `json:"name"`    // such as MariaDB
	Version string `json:"version"` // such as 10.11.14
	// Limits is what works less well on it, or was not tried; empty: nothing is known.
	Limits string `json:"limits,omitempty"`
}

// String returns name and version.
func (s Server) String() string { return strings.TrimSpace(s.Name + " " + s.Version) }

// Unsafe returns a setting of MySQL or MariaDB with which a crash of the server loses transactions that it has confirmed, and what
// to do; "": there is none. The transactions of PostgreSQL set what they need.
func (s *Store) Unsafe(ctx context.Context) (string, error) {
	if s.dialect.Name != MySQL {
		return "", nil
	}
	var flush, sync int
	var log bool
	err := s.gorm.WithContext(ctx).Raw("SELECT @@global.innodb_flush_log_at_trx_commit, @@global.log_bin, @@global.sync_binlog").Row().Scan(&flush, &log, &sync)
	const lost = "a crash of the server or of its machine loses closes whose events are published, and payments that were confirmed: set it to 1"
	switch {
	case err != nil:
		return "", s.failed(ctx, err, "read the settings of the database server")
	case flush != 1:
		return fmt.Sprintf("innodb_flush_log_at_trx_commit is %d: %s", flush, lost), nil
	case log && sync != 1:
		return fmt.Sprintf("sync_binlog is %d: %s", sync, lost), nil
	}
	return "", nil
}

// ErrServer says that the database server lacks what a close depends on.
var ErrServer = postgres.ErrServer

// Server asks the database what it is. The error wraps orderclose.ErrUnavailable if it does not
// answer, and ErrServer if orderclose does not work on it.
func (s *Store) Server(ctx context.Context) (Server, error) {
	query := "SELECT VERSION()"
	if s.dialect.Name == SQLite {
		query = "SELECT sqlite_version()"
	}
	var version string
	if err := s.gorm.WithContext(ctx).Raw(query).Row().Scan(&version); err != nil {
		return Server{}, s.failed(ctx, err, "read the version of the database server")
	}
	if s.dialect.Name == SQLite {
		return Server{Name: "SQLite", Version: version}, nil
	}
	return recognize(version)
}

// family is a kind of server, by what its VERSION() contains. docs/servers.md has the sources.
type family struct {
	mark   string // part of VERSION(), in lower case; empty: none of the others, which is MySQL
	name   string
	from   [2]int // the oldest version that works; 0: any
	lacks  string // what older versions lack; without from: what each version lacks
	limits string
}

// families are looked through in turn: servers that speak the protocol of another name it too.
var families = []family{
	{mark: "-tidb-", name: "TiDB",
		lacks: "it accepts FOR UPDATE SKIP LOCKED and locks nothing, so two processes take the same rows, and it refuses LOCK IN SHARE MODE"},
	{mark: "vitess", name: "Vitess", lacks: "it commits a transaction over several shards one by one, so that stock may come back without its order's close"},
	{mark: "oceanbase", name: "OceanBase", limits: "it was not tried; run make test's suite of the store on it before you rely on it"},
	{mark: "mariadb", name: "MariaDB", from: [2]int{10, 6}, lacks: "SKIP LOCKED"},
	{mark: "postgresql", name: "PostgreSQL"}, // package postgres has refused what does not work
	{name: "MySQL", from: [2]int{8, 0}, lacks: "SKIP LOCKED"},
}

// numbers finds the version among the words of VERSION().
var numbers = regexp.MustCompile(`(\d+)(?:\.(\d+))?[\d.]*`)

// recognize reads the answer to VERSION(). The error wraps ErrServer. Pure.
func recognize(version string) (Server, error) {
	lower := strings.ToLower(version)
	for _, f := range families {
		at := strings.Index(lower, f.mark)
		if at < 0 {
			continue
		}
		// Behind the name is the server's own version; before it, that of the protocol. MariaDB has it before.
		text := lower
		if f.name != "MariaDB" && f.name != "MySQL" {
			text = lower[at:]
		}
		found := numbers.FindStringSubmatch(strings.TrimPrefix(text, "5.5.5-")) // a prefix of MariaDB for old replicas
		if found == nil {
			found = make([]string, 3)
		}
		s := Server{Name: f.name, Version: found[0], Limits: f.limits}
		major, _ := strconv.Atoi(found[1])
		minor, _ := strconv.Atoi(found[2])
		switch oldest := f.from; {
		case oldest[0] == 0 && f.lacks != "":
			return s, fmt.Errorf("%w: %s: %s; docs/servers.md lists the servers that work, and closer.http.url works with any", ErrServer, s, f.lacks)
		case found[1] == "":
			s.Limits = fmt.Sprintf("its version cannot be read from %.80q", version)
		case major < oldest[0] || major == oldest[0] && minor < oldest[1]:
			return s, fmt.Errorf("%w: %s lacks %s: use %d.%d or newer; docs/servers.md lists the servers that work", ErrServer, s, f.lacks, f.from[0], f.from[1])
		}
		return s, nil
	}
	return Server{}, nil // not reached: the last family has no mark
}
