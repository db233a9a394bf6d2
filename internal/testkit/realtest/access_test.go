package realtest

import (
	"bufio"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/orderclose/orderclose/internal/testkit/must"
)

// row is a row of the access table in docs/security.md.
type row struct {
	part, resource, name, operation string // name without the prefix; a * at its end matches any suffix
}

var rowPattern = regexp.MustCompile("^\\| (\\w+) \\| (Topic|Group) \\| `([^`]+)` \\| (\\w+) \\|")

// accessTable reads the table from the document, so that the tests cover what the
// document says.
func accessTable(t *testing.T) (parts []string, rows map[string][]row) {
	t.Helper()
	f := must.Get(os.Open("../../../docs/security.md"))(t)
	defer f.Close()
	rows = map[string][]row{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		m := rowPattern.FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}
		if rows[m[1]] == nil {
			parts = append(parts, m[1])
		}
		rows[m[1]] = append(rows[m[1]], row{m[1], m[2], m[3], m[4]})
	}
	must.That(t, len(parts) >= 5, "the table in docs/security.md names the parts %v only", parts)
	return parts, rows
}

func (r row) String() string { return r.operation + " on " + r.resource + " " + r.name }

// acl returns the ACL that grants the row to a user, for names behind the prefix.
func (r row) acl(t *testing.T, user, prefix string) kafkago.ACLEntry {
	t.Helper()
	e := kafkago.ACLEntry{
		ResourceName: prefix + r.name, ResourcePatternType: kafkago.PatternTypeLiteral,
		Principal: "User:" + user, Host: "*", PermissionType: kafkago.ACLPermissionTypeAllow,
	}
	if name, ok := strings.CutSuffix(e.ResourceName, "*"); ok {
		e.ResourceName, e.ResourcePatternType = name, kafkago.PatternTypePrefixed
	}
	must.Do(t, e.ResourceType.UnmarshalText([]byte(r.resource)))
	must.Do(t, e.Operation.UnmarshalText([]byte(r.operation)))
	return e
}

// refusal matches the error that names the missing row, or a row that it implies and
// that is needed first. A user without any access to a topic cannot see the topic,
// settings are read before they are changed, and a producer id, which needs Write on
// any topic, is requested before an append.
func (r row) refusal(user, prefix string) *regexp.Regexp {
	name, prefixed := strings.CutSuffix(regexp.QuoteMeta(prefix)+r.name, "*")
	if !prefixed {
		name += "[,;]"
	}
	first := "Describe"
	if r.operation == "AlterConfigs" {
		first = "DescribeConfigs"
	}
	named := fmt.Sprintf(`(%s|%s) on %s [^;]*%s`, r.operation, first, r.resource, name)
	if r.operation == "Write" {
		named += `|Write on Topic \(any\);`
	}
	return regexp.MustCompile(fmt.Sprintf(`user \\?"%s\\?" lacks the ACL (%s)`, user, named))
}
