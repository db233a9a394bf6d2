package simulation

import (
	"flag"
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if os.Getenv("CHAOS") == "drive" {
		os.Exit(drive())
	}
	if run := flag.Lookup("test.run"); run.Value.String() == "" {
		_ = run.Value.Set(ordinary)
	}
	goleak.VerifyTestMain(m)
}
