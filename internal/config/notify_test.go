package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/orderclose/orderclose/internal/config"
)

func TestLoadNotify_ReadsTheExample(t *testing.T) {
	c, err := config.LoadNotify("../../deploy/alerts/notify.yaml")
	if err != nil {
		t.Fatal(err)
	}
	team, sms, call := c.Receivers["team"], c.Receivers["sms"], c.Receivers["call"]
	if team.DingTalk == nil || team.HTTP != nil || team.URLFile != "/run/secrets/dingtalk_url" || team.SecretFile == "" || team.Limit != 4000 {
		t.Errorf("team: %+v", team)
	}
	if sms.DingTalk != nil || sms.HTTP == nil || sms.URL == "" || sms.Limit != 300 || sms.HTTP.Method != "POST" || sms.HTTP.Accepted == nil || len(sms.HTTP.Headers) != 2 {
		t.Errorf("sms: %+v", sms)
	}
	if call.Limit != 500 || !strings.HasPrefix(call.HTTP.Body.Text, "key={{") || !strings.HasSuffix(call.HTTP.Body.At, ": receivers.call.http.body") {
		t.Errorf("call: %+v", call)
	}
}

func TestParseNotify_ReportsEveryProblemWithItsPosition(t *testing.T) {
	const valid = "receivers: {a: {dingtalk: {url: http://x, secret_file: f}}}"
	if _, err := config.ParseNotify("n", []byte(valid)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		file string
		want []string
	}{
		{"", []string{"n:1:1: no receiver; name one below receivers, with dingtalk or http"}},
		{"receivers:\n", []string{"n:1:11: no receiver; name one below receivers, with dingtalk or http"}},
		{"recievers: {a: 1}\n", []string{`n:1:1: unknown key "recievers"; did you mean receivers?`}},
		{"receivers:\n  a b:\n    http: {}\n", []string{`n:3:5: receivers.a b: "a b" cannot be the end of a URL; use a-z, A-Z, 0-9, underscore and hyphen only`}},
		{"receivers:\n  a: {}\n", []string{"n:2:6: receivers.a: want either dingtalk or http; write one of them"}},
		{"receivers: {a: {dingtalk: {url: http://x, secret_file: f}, http: {url: http://x, body: x}}}", []string{
			"n:1:16: receivers.a: want either dingtalk or http; write one of them"}},
		{"receivers:\n  a:\n    dingtalk: {url: http://x}\n", []string{
			"n:3:15: receivers.a.dingtalk.secret_file: is missing; create the robot with the security setting signature, and name a file that holds its secret"}},
		{"receivers:\n  a:\n    dingtalk: {secret_file: f}\n", []string{
			"n:3:15: receivers.a.dingtalk.url: want either url or url_file; write one of them; a URL that holds a token belongs into a file"}},
		{"receivers:\n  a:\n    dingtalk: {url: http://x, url_file: f, secret_file: f, at: [13800000000, bob, '+86-138', all]}\n", []string{
			`n:3:65: receivers.a.dingtalk.at[0]: 13800000000 is read as a value other than text; write it in quotes, "13800000000"`,
			`n:3:78: receivers.a.dingtalk.at[1]: "bob" is not a mobile number; write it in quotes, such as "13800000000", or write all`}},
		{"receivers:\n  a:\n    dingtalk: {url: http://x, secret_file: f, limit: 4001}\n", []string{
			"n:3:54: receivers.a.dingtalk.limit: 4001 is out of range; write one from 20 to 4000"}},
		{"receivers:\n  a:\n    http: {url: http://x}\n", []string{
			`n:3:11: receivers.a.http.body: is missing; write what the provider expects, such as '{"text": {{ json .Text }}}'`}},
		{"receivers:\n  a:\n    http: {url: x, body: b, method: GET, accepted: '(', limit: 1, header: {}}\n", []string{
			"n:3:17: receivers.a.http.url: it is not http://host/path or https://host/path; write it such as https://shop.example/orderclose/close",
			`n:3:37: receivers.a.http.method: "GET" is neither POST nor PUT; write POST or PUT`,
			"n:3:52: receivers.a.http.accepted: this is not a regular expression: error parsing regexp: missing closing ): `(`; write one, such as '\"code\": *0\\b'",
			"n:3:64: receivers.a.http.limit: 1 is out of range; write one from 20 to 20000",
			`n:3:67: receivers.a.http: unknown key "header"; did you mean headers?`}},
	} {
		_, err := config.ParseNotify("n", []byte(c.file))
		var problems config.Problems
		if !errors.As(err, &problems) {
			t.Errorf("%q: %v", c.file, err)
			continue
		}
		if diff := cmp.Diff(strings.Join(c.want, "\n"), err.Error()); diff != "" {
			t.Errorf("%q (-want +got):\n%s", c.file, diff)
		}
	}
}

func TestReadSecret_NeverQuotesTheContent(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret")
	for content, want := range map[string]string{"s3cret\r\n": "", "": file, "\n": file, "s3cret\ns3cret": file, "s3\x00cret": file} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		value, err := config.ReadSecret(file)
		switch {
		case want == "" && (err != nil || value != "s3cret"):
			t.Errorf("%q: %q, %v", content, value, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3")):
			t.Errorf("%q: %q, %v", content, value, err)
		}
	}
}
