package simulation

import (
	"flag"
	"log/slog"
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	flag.Parse()
	slog.SetDefault(slog.New(slog.DiscardHandler)) // httpclose.Handler logs panics there
	if os.Getenv("CHAOS") == "drive" {
		os.Exit(drive())
	}
	spare()
	goleak.VerifyTestMain(m)
}
