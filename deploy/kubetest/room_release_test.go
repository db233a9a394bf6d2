package kubetest

import (
	"strings"
	"testing"
)

func init() {
	whole = strings.NewReplacer(
		"env:\n  ORDERCLOSE_KAFKA_BROKERS", "env:\n  ORDERCLOSE_RELEASE_URL: https://stock.example/release\n"+
			"  ORDERCLOSE_RELEASE_TOKEN_FILE: /run/secrets/services/release-token\n  ORDERCLOSE_KAFKA_BROKERS",
		"roles:\n", "roles:\n  release: {enabled: true, replicas: 3}\n",
	).Replace(whole)
	allOn = strings.NewReplacer(
		"env:\n", "env:\n  ORDERCLOSE_RELEASE_URL: \"https://stock.example/release\"\n", "roles: {", "roles: {release: {enabled: true}, ",
	).Replace(allOn)
	componentsNeed = append(componentsNeed, "ORDERCLOSE_RELEASE_URL=https://stock.example/release")
}

func TestRelease_RefusesWrongValues(t *testing.T) {
	for text, want := range map[string]string{
		small + "\nroles: {release: {enabled: true}}":                                      "env.ORDERCLOSE_RELEASE_URL is not set",
		`env: {ORDERCLOSE_KAFKA_BROKERS: "k:1", ORDERCLOSE_RELEASE_URL: "https://u:p@s/"}`: "into env.ORDERCLOSE_RELEASE_URL_FILE",
		`env: {ORDERCLOSE_KAFKA_BROKERS: "k:1", ORDERCLOSE_RELEASE_TOKEN: hunter2}`:        "env.ORDERCLOSE_RELEASE_TOKEN is a secret",
	} {
		_, err := template(t, "orderclose", "shop", parse(t, text))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v, want an error with %q", text, err, want)
		}
	}
}
