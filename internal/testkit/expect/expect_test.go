package expect_test

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/orderclose/orderclose/internal/testkit/expect"
)

// recorder keeps the failures that a test would have.
type recorder []string

func (*recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) { *r = append(*r, fmt.Sprintf(format, args...)) }

func TestExpect_EachDifferenceFailsTheTest(t *testing.T) {
	var r recorder
	for _, same := range []bool{true, false} {
		value := map[bool]int{true: 2, false: 5}[same]
		expect.Equal(&r, value, 2, "number %d", 17)
		expect.Equal(&r, fmt.Sprint(value), "2", "text")
		expect.Same(&r, []int{value}, []int{2}, "list")
		expect.That(&r, same, "%d is wrong", value)
		expect.NoError(&r, map[bool]error{false: errors.New("broken")}[same])
		expect.Between(&r, value, 2, 4, "middle")
		expect.Between(&r, -value, -2, 4, "low")
		expect.AtMost(&r, value, 2, "most")
		err := fmt.Errorf("about %d: %w", value, map[bool]error{true: io.EOF, false: io.ErrNoProgress}[same])
		expect.Is(&r, expect.Err(value, err), io.EOF, "call")
		expect.Says(&r, err, "about 2", "text of %d", value)
		if same && len(r) != 0 {
			t.Fatalf("the same values fail: %q", r)
		}
	}
	expect.Says(&r, nil, "", "no error")
	if len(r) != 11 || r[0] != "number 17: got 5, want 2" || r[1] != `text: got "5", want "2"` || r[3] != "5 is wrong" || r[6] != "low: got -5, want -2 to 4" {
		t.Errorf("%q", r)
	}
}
