package realtest

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/rights"
)

// row is a row of package rights.
type row struct {
	part, resource, name, operation string // name without the prefix; a * at its end matches any suffix
}

// accessTable returns the rows of the core and of rooms, by part.
func accessTable(t *testing.T) (parts []string, rows map[string][]row) {
	t.Helper()
	rows = map[string][]row{}
	for _, r := range must.Get(rights.All("../../.."))(t).Kafka {
		if rows[r[0]] == nil {
			parts = append(parts, r[0])
		}
		rows[r[0]] = append(rows[r[0]], row{r[0], r[1], r[2], r[3]})
	}
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

// refusal matches the error that names the missing row, or a row that it implies and that is needed first. A user without any access to a topic cannot
// see the topic, settings are read before they are changed, and a producer id, which needs Write on any topic, is requested before an append.
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
