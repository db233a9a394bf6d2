package realtest

import (
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

// accessTable returns the rows by part.
func accessTable(t *testing.T) map[string][]row {
	t.Helper()
	rows := map[string][]row{}
	for _, r := range must.Get(rights.Read("../../.."))(t).Kafka {
		rows[r[0]] = append(rows[r[0]], row{r[0], r[1], r[2], r[3]})
	}
	return rows
}

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
