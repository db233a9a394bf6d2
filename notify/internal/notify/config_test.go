package notify

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

func TestLoadConfig_ReadsTheExamples(t *testing.T) {
	c := must.Get(LoadConfig("../../../deploy/alerts/notify.yaml"))(t)
	team, sms, call := c.Receivers["team"], c.Receivers["sms"], c.Receivers["call"]
	if team.DingTalk == nil || team.HTTP != nil || team.DingTalk.URLFile != "/run/secrets/dingtalk_url" || team.DingTalk.SecretFile == "" ||
		team.DingTalk.Limit != 4000 {
		t.Errorf("team: %+v", team)
	}
	if sms.DingTalk != nil || sms.HTTP == nil || sms.HTTP.URL == "" || sms.HTTP.Limit != 300 || sms.HTTP.Method != "POST" || sms.HTTP.accepted == nil ||
		len(sms.HTTP.Headers) != 2 {
		t.Errorf("sms: %+v", sms)
	}
	if call.HTTP.Limit != 500 || !strings.HasPrefix(call.HTTP.Body.Text, "key={{") || !strings.HasSuffix(call.HTTP.Body.At, ": receivers.call.http.body") {
		t.Errorf("call: %+v", call.HTTP)
	}
}

func TestParseConfig_ReportsEveryMistake(t *testing.T) {
	const valid = "receivers: {a: {dingtalk: {url: http://x, secret_file: f, at: [13800000000, '+86-138', all]}}}"
	must.Get(ParseConfig("n", []byte(valid)))(t)
	for _, c := range []struct {
		file string
		want []string
	}{
		{"", []string{"n: receivers: no receiver; name one below receivers, with dingtalk or http"}},
		{"receivers:\n", []string{"n: receivers: no receiver; name one below receivers, with dingtalk or http"}},
		{"recievers: {a: 1}\n", []string{"n: yaml: unmarshal errors:", "  line 1: field recievers not found"}},
		{"receivers:\n  a:\n    http: {header: {}}\n", []string{"n: yaml: unmarshal errors:", "  line 3: field header not found"}},
		{"receivers:\n  a:\n    dingtalk: {url: [x]}\n", []string{"n: yaml: unmarshal errors:", "  line 3: cannot unmarshal !!seq into string"}},
		{"receivers:\n  a:\n    dingtalk: {alert: [x]}\n", []string{"n: yaml: unmarshal errors:", "  line 3: cannot unmarshal !!seq into string"}},
		{"receivers:\n  a: {}\n  a: {}\n", []string{"n: yaml: unmarshal errors:", `  line 3: mapping key "a" already defined at line 2`}},
		{"receivers:\n  a b:\n    http: {}\n", []string{`n: receivers.a b: "a b" cannot be the end of a URL; use a-z, A-Z, 0-9, underscore and hyphen only`}},
		{"receivers:\n  a: {}\n", []string{"n: receivers.a: want either dingtalk or http; write one of them"}},
		{"receivers: {a: {dingtalk: {url: http://x, secret_file: f}, http: {url: http://x, body: x}}}", []string{
			"n: receivers.a: want either dingtalk or http; write one of them"}},
		{"receivers:\n  a:\n    dingtalk: {url: http://x}\n", []string{
			"n: receivers.a.dingtalk.secret_file: is missing; create the robot with the security setting signature, and name a file that holds its secret"}},
		{"receivers:\n  a:\n    dingtalk: {secret_file: f}\n", []string{
			"n: receivers.a.dingtalk.url: want either url or url_file; write one of them; a URL that holds a token belongs into a file"}},
		{"receivers:\n  a:\n    dingtalk: {url: http://x, url_file: f, secret_file: f, at: [bob, '']}\n", []string{
			"n: receivers.a.dingtalk.url: want either url or url_file; write one of them; a URL that holds a token belongs into a file",
			`n: receivers.a.dingtalk.at[0]: "bob" is not a mobile number; write it such as "13800000000", or write all`,
			`n: receivers.a.dingtalk.at[1]: "" is not a mobile number; write it such as "13800000000", or write all`}},
		{"receivers:\n  a:\n    dingtalk: {url: http://x, secret_file: f, limit: 4001}\n", []string{
			"n: receivers.a.dingtalk.limit: 4001 is out of range; write one from 20 to 4000"}},
		{"receivers:\n  a:\n    http: {url: x, method: GET, accepted: '(', limit: 1}\n", []string{
			"n: receivers.a.http.url: it is not http://host/path or https://host/path; write it such as https://sms.example/send",
			"n: receivers.a.http.limit: 1 is out of range; write one from 20 to 20000",
			`n: receivers.a.http.method: "GET" is neither POST nor PUT; write POST or PUT`,
			`n: receivers.a.http.body: is missing; write what the provider expects, such as '{"text": {{ json .Text }}}'`,
			"n: receivers.a.http.accepted: this is not a regular expression: error parsing regexp: missing closing ): `(`; write one, such as '\"code\": *0\\b'"}},
	} {
		_, err := ParseConfig("n", []byte(c.file))
		must.That(t, err != nil, "%q is accepted", c.file)
		expect.Same(t, err.Error(), strings.Join(c.want, "\n"), "%q", c.file)
	}
}

func TestReadSecret_NeverQuotesTheContent(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret")
	for content, want := range map[string]string{
		strings.Repeat("s3", 32<<10) + "x": "larger than 64 KiB", "s3cret\r\n": "", "": file, "\n": file, "s3cret\ns3cret": file, "s3\x00cret": file,
	} {
		must.Do(t, os.WriteFile(file, []byte(content), 0o600))
		value, err := readSecret(file)
		switch {
		case want == "" && (err != nil || value != "s3cret"):
			t.Errorf("%q: %q, %v", content, value, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3")):
			t.Errorf("%q: %q, %v", content, value, err)
		}
	}
}
