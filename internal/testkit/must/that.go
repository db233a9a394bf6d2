package must

import "fmt"

// That ends the test if holds is false. The format says what is wrong.
func That(t TB, holds bool, format string, args ...any) {
	t.Helper()
	if !holds {
		t.Fatal(fmt.Sprintf(format, args...))
	}
}
