package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

func TestOrders_AreReadWithAnyLineBreaks(t *testing.T) {
	const two = `{"order_id":"a","category":"virtual","created_at":"2026-01-01T00:00:00+08:00","due_at":null,"attributes":{"due":17}}

{
  "order_id": "b", "due_at": "2026-01-01T00:00:00Z"
} {"order_id":"c"}
`
	var all []line
	for l, err := range each(iotest.OneByteReader(strings.NewReader(two)), parseLine) {
		must.Do(t, err)
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
		expect.That(t, code == 2 && out == "" && !strings.Contains(stderr, "parsing time"), "%s: exit %d, %q, %q", c.stdin, code, out, stderr)
		for _, want := range c.want {
			expect.That(t, strings.Contains(stderr, want), "%s: %q does not contain %q", c.stdin, stderr, want)
		}
	}
}

func TestBroker_SendStopsAtTheFirstInvalidLine(t *testing.T) {
	r := newRig(t)
	r.cli("topics", "apply")
	out, stderr, code := runOn(t, `{"order_id":"a"}`+"\n"+`{"order_id":"b","due":1}`, map[string]string{config.EnvBrokers: r.brokers}, "send",
		"-", "--config", r.file)
	if code != 6 || strings.Count(out, "\n") != 1 || !strings.Contains(stderr, "line 2: unknown field") ||
		!strings.Contains(stderr, "1 order before it was sent") {
		t.Errorf("exit %d, %q, %q", code, out, stderr)
	}
	out, stderr, code = r.cli("send", "--id", "c", "--due", "9998-12-31T00:00:00Z")
	expect.That(t, code == 5 && out == "" && strings.Contains(stderr, "it is due on 9998-12-31"), "exit %d, %q, %q", code, out, stderr)
	out, stderr, code = r.cli("send", "--id", "c", "--due", "9999-12-31T00:00:00Z")
	expect.That(t, code == 0 && strings.Join(strings.Fields(out), " ") == "c is never closed not sent", "exit %d, %q, %q", code, out, stderr)
	out, stderr, code = r.cli("send", "--id", "c")
	expect.That(t, code == 0 && strings.HasPrefix(out, "c "), "exit %d, %q, %q", code, out, stderr)
}

// check runs records check on records, without a server.
func check(t *testing.T, stdin string, more ...string) (stdout, stderr string, code int) {
	t.Helper()
	return runOn(t, stdin, nil, append([]string{"records", "check", "-", "--config", topicsYAML(t, "buckets: [10s, 5m]\n")}, more...)...)
}

func TestRecordsCheck_AcceptsWhatTheStagesRead(t *testing.T) {
	due := time.Now().Add(4 * time.Minute).UTC().Truncate(time.Millisecond)
	value := fmt.Sprintf(`{"order_id":"17","category":null,"created_at":"2026-03-01T20:00:00.123456789+08:00","due_at":%q,"attributes":null,"more":1}`,
		due.Format(time.RFC3339Nano))
	quoted := must.Get(json.Marshal(value))(t)
	ms := due.UnixMilli()
	stdin := strings.Join([]string{
		value,
		fmt.Sprintf(`{"key":"17","headers":{"due":"%d","v":"1","__TypeId__":"x"},"value":%s}`, ms, value),
		fmt.Sprintf(`{"key":"17","headers":{"due":"%d","v":"1"},"value":%s}`, ms, quoted),
		fmt.Sprintf(`{"topic":"t","partition":0,"offset":1,"headers":["due","%d","v","1","none",null],"key":"17","payload":%s}`, ms, quoted),
		fmt.Sprintf(`{"key":"17","headers":{"due":"%d","v":"1","attempt":"1","cause":"failed"},"value":%s}`, ms+60_000, value), // a retry
	}, "\n")
	var all struct {
		Records        []checkedRecord
		Checked, Wrong int
	}
	out, _, _ := check(t, stdin, "-o", "json")
	must.Do(t, json.Unmarshal([]byte(out), &all))
	expect.That(t, len(all.Records) == 5 && all.Checked == 5 && all.Wrong == 0, "%s", out)
	out, stderr, code := check(t, stdin, "-o", "jsonl")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	must.That(t, code == 0 && stderr == "" && len(lines) == 5, "exit %d, %q, %q", code, out, stderr)
	for i, line := range lines {
		topic := "delay_10s"
		if i == 4 {
			topic = "delay_5m"
		}
		want := fmt.Sprintf(`{"line":%d,"ok":true,"order_id":"17","due_at":%q,"topic":%q}`, i+1, due.Format(time.RFC3339Nano), topic)
		expect.That(t, line == want, "got  %s\nwant %s", line, want)
	}
}

func TestRecordsCheck_NamesWhatTheStagesCouldNotRead(t *testing.T) {
	const times = `"created_at":"2026-03-01T12:00:00Z","due_at":"2026-03-01T12:05:00Z"`
	record := func(headers string) string {
		return `{"key":"17","headers":` + headers + `,"value":{"order_id":"17",` + times + `}}`
	}
	for input, want := range map[string]string{
		`{"order_id":17,` + times + `}`: "bad_value: order_id is a number, want text",
		`{"order_id":"17","created_at":1772366700.123000000,"due_at":"2026-03-01T12:05:00Z"}`:            "bad_value: created_at is a number, want text in RFC 3339",
		`{"key":"18","headers":{"due":"1772366700000","v":"1"},"value":{"order_id":"17",` + times + `}}`: `key_mismatch: order_id is "17", and the key is "18"`,
		`{"key":null,"payload":"{}"}`:            "no_key: the key must be the order id",
		record(`{"due":"1772366700000"}`):        `bad_version: header v is missing, want "1"`,
		record(`{"v":"1"}`):                      "bad_due: header due is missing, want unix milliseconds",
		record(`{"due":"\u0000\u0001","v":"1"}`): `bad_due: header due is "\\x00\\x01", want unix milliseconds`,
		record(`{"due":"1772366700","v":"1"}`): "header due is 1772366700, which is 1970-01-21T12:19:26.700Z, and due_at is " +
			"2026-03-01T12:05:00.000Z: want 1772366700000",
		`{"order_id":"17",` + strings.Replace(times, "2026-03-01T12:05", "9026-03-01T12:05", 1) + `}`: "(delays.max in topics.yaml)",
		`["17"]`: "bad_value: the value is an array, want a JSON object",
	} {
		out, stderr, code := check(t, "\n"+input+"\n"+`{"order_id":"ok",`+times+"}\n")
		first, second, _ := strings.Cut(out, "\n")
		if code != 3 || !strings.HasPrefix(first, "FOUND  line 2  ") || !strings.Contains(first, want) ||
			!strings.HasPrefix(second, "ok  line 3  ok  due 2026-03-01T12:05:00.000Z  order-close") || !strings.Contains(stderr, "1 of 2 records with a problem") {
			t.Errorf("%s\nexit %d\n%s%swant %s", input, code, out, stderr, want)
		}
	}
}

func TestRecordsCheck_RefusesWhatIsNoRecord(t *testing.T) {
	for input, want := range map[string]string{
		"":                      "stdin has no record",
		"\n<order/>":            "line 2: not a JSON object",
		`{"key":17,"value":{}}`: "line 1: key is 17: want text",
		`{"key":"a","headers":{"due":1772366700000}}`: `line 1: headers is {"due":1772366700000}: want an object of texts`,
		`{"key":"a","headers":["due"]}`:               `line 1: headers is ["due"]: want an object of texts`,
	} {
		if out, stderr, code := check(t, input); code != 2 || out != "" || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit %d, %q, %q", input, code, out, stderr)
		}
	}
	for _, args := range [][]string{{}, {"-", "--topic", "delay_10s"}, {"--topic", "delay_10s", "--last", "0"}} {
		if _, stderr, code := run(t, nil, append([]string{"records", "check"}, args...)...); code != 2 || !strings.Contains(stderr, "give a file, or -") {
			t.Errorf("%v: exit %d, %q", args, code, stderr)
		}
	}
	if _, stderr, code := run(t, nil, "records", "check", "nowhere.jsonl"); code != 2 || !strings.Contains(stderr, "nowhere.jsonl") {
		t.Errorf("exit %d, %q", code, stderr)
	}
}

func TestRecordsCheck_NamesAllProblemsOfARecord(t *testing.T) {
	file := filepath.Join(t.TempDir(), "records.jsonl")
	record := `{"headers":{"due":"soon"},"value":{"order_id":"17","created_at":"yesterday","due_at":"2026-03-01T12:05:00Z"}}`
	must.Do(t, os.WriteFile(file, []byte(record), 0o600))
	out, _, code := run(t, nil, "records", "check", file, "--config", topicsYAML(t, "buckets: [10s]\n"))
	want := `FOUND  line 1  no_key: the key must be the order id; bad_version: header v is missing, want "1"; ` +
		`bad_due: header due is "soon", want unix milliseconds in decimal digits; bad_value: created_at is "yesterday", want text in RFC 3339`
	expect.That(t, code == 3 && strings.HasPrefix(out, want), "exit %d\n%swant %s", code, out, want)
}

func TestRecordsCheck_ReadsTheEndOfATopic(t *testing.T) {
	r := newRig(t)
	if _, stderr, code := r.cli("topics", "apply"); code != 0 {
		t.Fatal(stderr)
	}
	due := time.Now().Add(time.Minute)
	for range 2 {
		r.put("delay_1m", 0, time.Now(), due)
	}
	r.put("delay_1m", 1, time.Now(), due)
	out, stderr, code := r.cli("records", "check", "--topic", "delay_1m", "--last", "1")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	const missing = "bad_value: created_at is missing"
	if code != 3 || len(lines) != 2 || !strings.Contains(stderr, "2 of 2 records with a problem") ||
		!strings.HasPrefix(lines[0], "FOUND  0/1  "+missing) || !strings.HasPrefix(lines[1], "FOUND  1/0  "+missing) {
		t.Fatalf("exit %d\n%s%s", code, out, stderr)
	}
	expect.That(t, strings.Contains(lines[0], "the key belongs to partition 1: ") && !strings.Contains(lines[1], "partition"), "%s", out)
}

func TestRecordsCheck_ThePageOfTheFormatShowsItsOutput(t *testing.T) {
	page := must.Get(os.ReadFile("../../docs/wire.md"))(t)
	block := func(name string) string {
		_, rest, _ := strings.Cut(string(page), "```"+name+"\n")
		body, _, _ := strings.Cut(rest, "```")
		return body
	}
	out, _, code := check(t, block("json check"))
	want := block("text checked")
	expect.That(t, code == 3 && out == want, "exit %d\n%swire.md has\n%s", code, out, want)
	if out, _, code := check(t, block("json value")); code != 0 || !strings.HasPrefix(out, "ok  line 1  ORD-20260301-000017") {
		t.Errorf("the example of a value: exit %d, %s", code, out)
	}
}
