package cli

import (
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/orderclose/orderclose/internal/config"
)

func TestOrders_AreReadWithAnyLineBreaks(t *testing.T) {
	const two = `{"order_id":"a","category":"virtual","created_at":"2026-01-01T00:00:00+08:00","due_at":null,"attributes":{"due":17}}

{
  "order_id": "b", "due_at": "2026-01-01T00:00:00Z"
} {"order_id":"c"}
`
	var all []line
	for l, err := range each(iotest.OneByteReader(strings.NewReader(two)), parseLine) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, l)
	}
	created := time.Date(2025, 12, 31, 16, 0, 0, 0, time.UTC)
	if len(all) != 3 || all[0].ID != "a" || all[0].Category != "virtual" || !all[0].CreatedAt.Equal(created) || !all[0].DueAt.IsZero() ||
		all[0].Attributes["due"] != 17.0 || all[1].ID != "b" || all[1].DueAt.Year() != 2026 || all[2].ID != "c" {
		t.Errorf("%+v", all)
	}
}

// An invalid order is not sent: the error names the field, and the line in which the order
// begins.
func TestSend_NamesTheFieldAndLineOfAnInvalidOrder(t *testing.T) {
	file := topicsYAML(t, "buckets: [10s]\n")
	env := map[string]string{config.EnvBrokers: "127.0.0.1:1"} // no server is asked
	for _, c := range []struct {
		stdin string
		want  []string
	}{
		{`{"order_id":"x","category":"virtual","due":"2026-01-01"}`, []string{`line 1: unknown field "due"`, "order_id, category, created_at, due_at, attributes"}},
		{"\n\n" + `{"order_id":"x","Due_At":"2026-01-01T00:00:00Z"}`, []string{`line 3: unknown field "Due_At"`}},
		{`{"order_id":"x","due_at":"2026-01-01"}`, []string{`line 1: due_at is "2026-01-01": want a time such as 2`}},
		{"\n{\n" + `"order_id":"x","created_at":17}`, []string{`line 2: created_at is 17: want a time such as 2`}},
		{`{"order_id":17}`, []string{`line 1: order_id is 17: want text`}},
		{`{"order_id":"x","attributes":"none"}`, []string{`line 1: attributes is "none": want an object`}},
		{`["x"]`, []string{`line 1: ["x"] is not a JSON object of an order`}},
		{"null", []string{`line 1: null is not a JSON object of an order`}},
		{"\norder-17\n", []string{"line 2: not a JSON object of an order: invalid character"}},
		{"\n" + `{"order_id":`, []string{"line 2: not a JSON object of an order: unexpected EOF"}},
	} {
		out, stderr, code := runOn(t, c.stdin, env, "send", "-", "--config", file)
		if code != 2 || out != "" || strings.Contains(stderr, "parsing time") {
			t.Errorf("%s: exit %d, %q, %q", c.stdin, code, out, stderr)
		}
		for _, want := range c.want {
			if !strings.Contains(stderr, want) {
				t.Errorf("%s: %q does not contain %q", c.stdin, stderr, want)
			}
		}
	}
}

func TestBroker_SendStopsAtTheFirstInvalidLine(t *testing.T) {
	r := newRig(t)
	r.cli("topics", "apply")
	out, stderr, code := runOn(t, `{"order_id":"a"}`+"\n"+`{"order_id":"b","due":1}`, map[string]string{config.EnvBrokers: r.brokers}, "send", "-", "--config", r.file)
	if code != 6 || strings.Count(out, "\n") != 1 || !strings.Contains(stderr, "line 2: unknown field") || !strings.Contains(stderr, "1 order before it was sent") {
		t.Errorf("exit %d, %q, %q", code, out, stderr)
	}
	if out, stderr, code = r.cli("send", "--id", "c", "--due", "9998-12-31T00:00:00Z"); code != 5 || out != "" || !strings.Contains(stderr, "it is due on 9998-12-31") {
		t.Errorf("exit %d, %q, %q", code, out, stderr)
	}
	if out, stderr, code = r.cli("send", "--id", "c", "--due", "9999-12-31T00:00:00Z"); code != 0 || strings.Join(strings.Fields(out), " ") != "c is never closed not sent" {
		t.Errorf("exit %d, %q, %q", code, out, stderr)
	}
	if out, stderr, code = r.cli("send", "--id", "c"); code != 0 || !strings.HasPrefix(out, "c ") {
		t.Errorf("exit %d, %q, %q", code, out, stderr)
	}
}
