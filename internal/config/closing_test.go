package config_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/orderclose/orderclose/internal/config"
)

func TestParse_RefusesWrongSettingsOfTheCloser(t *testing.T) {
	for _, row := range []struct{ closer, want string }{
		{"{kind: grpc}", `2:16: closer.kind: "grpc" is neither sql nor http; write sql or http`},
		{"{kind: http}", `2:16: closer.http.url: closer.kind is http, but there is no url; set it to the URL of the service`},
		{"{kind: http, http: {}}", `2:28: closer.http.url: closer.kind is http, but there is no url; set it to the URL of the service`},
		{"{http: {url: \"http://a/\"}}", `2:22: closer.http.url: it is set, but closer.kind is not http; set closer.kind to http, or remove it`},
		{"{kind: http, http: {url: shop/close}}", `2:34: closer.http.url: it is not http://host/path or https://host/path; write it such as https://shop.example/orderclose/close`},
		{"{kind: http, http: {url: \"http://u:p@a/\"}}", `2:34: closer.http.url: it holds a user or password; requests are signed instead; write it such as https://shop.example/orderclose/close`},
		{"{kind: http, http: {url: \"http://a/\", batch: 0}}", `2:54: closer.http.batch: 0 is out of range; write one from 1 to 999`},
		{"{kind: http, http: {url: \"http://a/\"}, payment: {url: \"http://a/\"}}", `2:63: closer.payment.url: with closer.kind http this process does not ask the payment provider; let the service ask, and answer payment_pending while it does not know; then remove this`},
		{"{payment: {url: 7}}", `2:25: closer.payment.url: 7 is read as a value other than text; write it in quotes, "7"`},
		{"{payment: {cancel: true}}", `2:28: closer.payment.url: closer.payment.cancel is true, but there is no url; set it to the URL of the service that cancels payments`},
		{"{payment: {url: \"https://a/\", cancel: always}}", `2:47: closer.payment.cancel: "always" is neither true nor false; write true or false`},
		{"{kind: http, http: {url: \"http://a/\", cancel: true}}", `2:47: closer.http: unknown key "cancel"; known here: batch, url`},
		{"{payment: {recheck: 10m}}", `2:29: closer.payment.recheck: want a list, found "10m"; write it as [10m, 1h, 24h]`},
		{"{payment: {recheck: [299s]}}", `2:30: closer.payment.recheck[0]: 4m59s is out of range, or not longer than the one before it; write ascending durations from 5m to 30d`},
		{"{payment: {recheck: [1h, 31d]}}", `2:34: closer.payment.recheck[1]: 31d is out of range, or not longer than the one before it; write ascending durations from 5m to 30d`},
		{"{payment: {recheck: [1h, 60m]}}", `2:34: closer.payment.recheck[1]: 1h is out of range, or not longer than the one before it; write ascending durations from 5m to 30d`},
		{"{payment: {recheck_rate: 0}}", `2:34: closer.payment.recheck_rate: 0 is out of range; write one from 1 to 1000000`},
		{"{payment: {uri: x}}", `2:20: closer.payment: unknown key "uri"; did you mean url?`},
	} {
		_, err := config.Parse("t.yaml", []byte("buckets: [1m]\ncloser: "+row.closer+"\n"))
		if want := "t.yaml:" + row.want; err == nil || err.Error() != want {
			t.Errorf("%s: got\n%v\nwant\n%s", row.closer, err, want)
		}
	}
}

func TestParse_APaymentProviderNeedsThePaidStatus(t *testing.T) {
	const file = "buckets: [1m]\ncloser: {payment: {url: \"https://a/\"}}\norders:\n  table: t\n  id: {column: id, type: integer}\n" +
		"  status: {column: s, from: 1, to: 9%s}\n  due: {column: d, type: datetime, zone: UTC, precision: s}\n  items: none\n  stock: none\n"
	if _, err := config.Parse("t.yaml", fmt.Appendf(nil, file, "")); err == nil || !strings.Contains(err.Error(), "t.yaml:6:11: closer.payment.url: a payment provider is set, but orders.status.paid is empty") {
		t.Errorf("without: %v", err)
	}
	if _, err := config.Parse("t.yaml", fmt.Appendf(nil, file, ", paid: [2]")); err != nil {
		t.Errorf("with: %v", err)
	}
}

func TestFromEnviron_ReadsSeveralSecrets(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secrets")
	write(t, file, "the-new-one-at-home\nthe-old-one-not-so-new\n")
	got, err := config.FromEnviron(environ{
		"ORDERCLOSE_HTTP_SECRET":         "0123456789abcdef0123, fedcba98765432100123",
		"ORDERCLOSE_PAYMENT_SECRET_FILE": file,
	}.lookup)
	want := config.Secrets{
		HTTP:    []string{"0123456789abcdef0123", "fedcba98765432100123"},
		Payment: []string{"the-new-one-at-home", "the-old-one-not-so-new"},
	}
	if diff := cmp.Diff(want, got.Secrets); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if shown := fmt.Sprintf("%v %+v %#v %s", got, got, got, got); strings.Contains(shown, "0123456789") || strings.Contains(shown, "the-new-one") {
		t.Errorf("it shows a secret: %s", shown)
	}
	if err := got.Require(config.EnvHTTPSecret, config.EnvPaymentSecret); err != nil {
		t.Error(err)
	}
	if err := (config.Servers{}).Require(config.EnvHTTPSecret); !errors.Is(err, config.ErrNotSet) {
		t.Error(err)
	}
}

func TestFromEnviron_RefusesShortSecretsWithoutShowingThem(t *testing.T) {
	for _, secret := range []string{"hunter2", "0123456789abcdef0123,hunter2", ",", " "} {
		_, err := config.FromEnviron(environ{"ORDERCLOSE_HTTP_SECRET": secret}.lookup)
		if err == nil || !strings.Contains(err.Error(), "ORDERCLOSE_HTTP_SECRET: ") || slices.Contains(strings.Fields(err.Error()), "hunter2") {
			t.Errorf("%q: %v", secret, err)
		}
	}
}
