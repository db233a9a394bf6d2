package cli

import (
	"strings"
	"testing"

	"github.com/orderclose/orderclose/internal/testkit/expect"
)

func TestClose_WantsSKUsAndAReason(t *testing.T) {
	for _, args := range [][]string{{}, {"--without-stock", "pen"}, {"--reason", "deleted"}, {"--without-stock", "pen", "--reason", strings.Repeat("x", 256)}} {
		_, stderr, code := run(t, nil, append([]string{"close", "order-17"}, args...)...)
		expect.That(t, code == int(Usage) && strings.Contains(stderr, "name the SKUs with --without-stock"), "%v: exit %d, %s", args, code, stderr)
	}
}
