package config_test

import (
	"errors"
	"os"
	"slices"
	"testing"
	"unicode/utf8"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// FuzzParse: any file is either refused, with positions that are inside the file, or it gives a valid configuration.
func FuzzParse(f *testing.F) {
	data, err := os.ReadFile(shipped)
	must.Do(f, err)
	f.Add(data)
	f.Add([]byte(mapped))
	for _, row := range refusals {
		f.Add([]byte(row.file))
	}
	for _, seed := range []string{
		"buckets: [1s]\n? {a: b}\n: c\n",
		"buckets: &a [*a]\n",
		"&r\nbuckets: [1s]\n*r : 1\n",
		"buckets: [!!binary AAA=, !!int 1, !!timestamp 2000-01-01, !x 1s]\n",
		"partitions: !!int abc\nreplication: 0x10\ncompensator: {rate: 0o7}\nbuckets: [1s]\n",
		"topics: {close: |\n  a\n  b\n  }\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := config.Parse("t", data)
		if err == nil {
			reliable(t, c)
			return
		}
		var problems config.Problems
		must.That(t, errors.As(err, &problems) && len(problems) != 0 && c == nil, "want problems only, got %v, %v", c, err)
		for _, p := range problems {
			lines := 1 + count(data)
			expect.That(t, p.Line >= 1 && (p.Line <= lines || !utf8.Valid(data)) && p.Column >= 1 && p.What != "" && p.Do != "",
				"the problem has no position or no hint: %#v", p)
		}
	})
}

// count counts line ends. YAML knows several kinds.
func count(data []byte) (n int) {
	for _, c := range string(data) {
		if c == '\n' || c == '\r' || c == '\u0085' || c == '\u2028' || c == '\u2029' {
			n++
		}
	}
	return n
}

func reliable(t *testing.T, c *config.Config) {
	t.Helper()
	names := map[string]bool{c.Topics.Close: true, c.Topics.DeadLetter: true, c.Topics.Events: true}
	for _, b := range c.Buckets {
		names[b.Topic] = true
		expect.That(t, b.Length >= 1 && b.Length <= c.MaxDelay, "bucket %+v, maximum %v", b, c.MaxDelay)
	}
	sorted := slices.IsSortedFunc(c.Buckets, func(a, b orderclose.Bucket) int { return int(a.Length - b.Length) })
	expect.That(t, len(c.Buckets) != 0 && sorted && len(names) == len(c.Buckets)+3, "buckets %+v, topics %+v", c.Buckets, c.Topics)
	for _, delay := range c.Delays.ByCategory {
		expect.That(t, delay > 0 && delay <= c.MaxDelay, "delays %+v, maximum %v", c.Delays, c.MaxDelay)
	}
	expect.That(t, c.Partitions >= 1 && c.Replication >= 1 && c.Delays.Default > 0 && c.Delays.Default <= c.MaxDelay, "unusable: %+v", c)
}
