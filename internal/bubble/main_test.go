package bubble

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if run := flag.Lookup("test.run"); run.Value.String() == "" {
		_ = run.Value.Set(ordinary)
	}
	goleak.VerifyTestMain(m)
}
