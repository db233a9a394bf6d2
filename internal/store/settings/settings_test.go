package settings

import (
	"testing"

	"github.com/orderclose/orderclose/internal/testkit/must"
)

func TestList_EachRowSaysWhatIsDone(t *testing.T) {
	known := map[string]bool{}
	for _, s := range all() {
		one := s.What == "forced" || s.What == "limit" || s.What == "refused"
		must.That(t, one || s.What == "set" || s.What == "fails" || s.What == "harmless", "%v: what is done?", s)
		must.That(t, one == (s.Value != "") && (!one || len(s.Names) == 1), "%v: only one that is forced, refused or a limit has a value", s)
		for _, name := range s.Names {
			must.That(t, !known[s.Servers+name], "%s has two rows", name)
			known[s.Servers+name] = true
		}
	}
	must.That(t, Find(MySQL, "max_statement_time").Names == nil && Find(MariaDB, "MAX_STATEMENT_TIME").What == "forced", "a variable of MariaDB only")
}
