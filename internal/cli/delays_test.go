package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"testing"

	"github.com/orderclose/orderclose/internal/ops"
)

func TestDelaysExplain_SaysWhichRuleDecides(t *testing.T) {
	file := topicsYAML(t, `buckets: [1m]
delays:
  categories: {virtual: 15m, physical: 1h}
  rules:
    - match: {attributes: {payment_method: bank_transfer}}
      never: true
    - match: {category: virtual}
      grace: 1m
      remind: [2m, 10m]
    - match: {attributes: {vip: "true"}}
      after: 2h
`)
	var all []string
	for _, args := range [][]string{
		{"--category", "virtual"}, {"--category", "virtual", "--attribute", "payment_method=bank_transfer"},
		{"--category", "physical", "--attribute", "vip=true"}, {"--category", "physical", "--category", "gift"}, {},
	} {
		args = append([]string{"delays", "explain", "--config", file, "--at", "2030-01-02T03:04:05Z"}, args...)
		out, stderr, code := run(t, nil, args...)
		if code != 0 {
			t.Fatalf("%v: exit %d, %s", args, code, stderr)
		}
		all = append(all, fmt.Sprintf("$ %v\n%s", args[6:], out))
		var answer ops.DelayAnswer
		if out, _, code := run(t, nil, append(args, "-o", "json")...); code != 0 || json.Unmarshal([]byte(out), &answer) != nil || answer.Due.IsZero() {
			t.Errorf("%v: exit %d, %s", args, code, out)
		}
	}
	golden(t, "delays_explain", func(w io.Writer) {
		for _, text := range all {
			fmt.Fprintln(w, text)
		}
	})
}
