package realtest

import (
	"cmp"
	"encoding/csv"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// docs/data/alerts-tested.csv says of every alert how it was tested: in which incidents of the game day, or why by promtool only.
func TestGameDay_TheTableHasEveryAlert(t *testing.T) {
	var alerts []string
	names, err := filepath.Glob("../../../deploy/helm/orderclose/alerts/*.rules.yml")
	must.That(t, err == nil && len(names) != 0, "no rules: %v", err)
	for _, name := range names {
		for _, m := range find(t, name, `(?m)^ *- alert: (\w+)$`) {
			alerts = append(alerts, m[1])
		}
	}
	slices.Sort(alerts)
	alerts = slices.Compact(alerts) // two rules of an alert differ in their label what
	played := map[string][]string{} // the incidents of an alert
	for _, i := range incidents() {
		for j, alert := range slices.Concat(i.alerts, i.lasting) {
			alert, _, _ = strings.Cut(alert, "/")
			how := i.name
			if j >= len(i.alerts) {
				how += ", without its end"
			}
			if !slices.Contains(played[alert], how) {
				played[alert] = append(played[alert], how)
			}
			expect.That(t, slices.Contains(alerts, alert), "the incident %q has the unknown alert %s", i.name, alert)
		}
	}
	table := map[string]string{}
	for _, row := range must.Get(csv.NewReader(strings.NewReader(readFile(t, "../../../docs/data/alerts-tested.csv"))).ReadAll())(t)[1:] {
		_, twice := table[row[0]]
		expect.That(t, !twice, "the table has %s twice", row[0])
		table[row[0]] = row[1]
	}
	for _, alert := range alerts {
		switch how, want := table[alert], strings.Join(played[alert], "; "); {
		case want == "" && len(how) > len("promtool only: ") && strings.HasPrefix(how, "promtool only: "):
		case want == "" || how != want:
			t.Errorf("the table says of %s %q, want %q", alert, how, cmp.Or(want, "promtool only: …"))
		}
		delete(table, alert)
	}
	for alert := range table {
		t.Errorf("the table has %s, which no rule defines", alert)
	}
}

func find(t *testing.T, file, expression string) [][]string {
	t.Helper()
	data := must.Get(os.ReadFile(file))(t)
	return regexp.MustCompile(expression).FindAllStringSubmatch(string(data), -1)
}
