package measure

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

func TestMedian_DoesNotDependOnTheOrder(t *testing.T) {
	for want, values := range map[float64][]float64{3: {9, 1, 3}, 2.5: {4, 2, 3, 1}, 7: {7}, 0: nil} {
		before := slices.Clone(values)
		have := Median(values)
		expect.That(t, have == want && slices.Equal(values, before), "median of %v is %v, want %v (and they are now %v)", before, have, want, values)
	}
}

func TestPercentile_IsTheNearestRank(t *testing.T) {
	var thousand []int
	for i := range 1000 {
		thousand = append(thousand, i+1)
	}
	for q, want := range map[float64]int{0: 1, 0.5: 500, 0.99: 990, 0.999: 999, 1: 1000} {
		have := Percentile(thousand, q)
		expect.That(t, have == want, "percentile %v of 1..1000 is %d, want %d", q, have, want)
	}
	one, none := Percentile([]int{4}, 0.5), Percentile([]int{}, 0.5)
	expect.That(t, one == 4 && none == 0, "of one value %d, of none %d", one, none)
}

func TestPrint_WritesOneObjectAndItsTables(t *testing.T) {
	type row struct {
		Side  string `json:"side"`
		RPS   Number `json:"rps"`
		Stage Spread `json:"stage"`
	}
	result := struct {
		Rows  []row             `json:"rows"`
		Early int               `json:"early"`
		Of    map[string]Number `json:"of"`
	}{[]row{{"relay", 2000.44444, SpreadOf([]time.Duration{2 * time.Millisecond, 1500 * time.Microsecond})}, {"copy", 7, Spread{}}}, 3,
		map[string]Number{"b": 2, "a": 1}}
	var out, tables strings.Builder
	must.Do(t, Print(&out, &tables, result))
	const want = `{"rows":[{"side":"relay","rps":2000.444,"stage":{"p50_ms":1.5,"p99_ms":2,"max_ms":2}},` +
		`{"side":"copy","rps":7,"stage":{"p50_ms":0,"p99_ms":0,"max_ms":0}}],"early":3,"of":{"a":1,"b":2}}` + "\n"
	if out.String() != want {
		t.Errorf("printed\n%swant\n%s", out.String(), want)
	}
	lines := strings.Split(tables.String(), "\n")
	for i, line := range lines {
		lines[i] = strings.Join(strings.Fields(line), " ")
	}
	if text := strings.Join(lines, "\n"); !strings.Contains(text, "rows side rps stage p50_ms stage p99_ms stage max_ms\nrelay 2000.444 1.5 2 2\ncopy 7 0 0 0\n"+
		"early 3\n\nof a b\n1 2\n") {
		t.Errorf("the tables:\n%s", text)
	}
}
