// Package must ends a test at an error that the test is not about, or where it cannot go on.
//
//	must.Do(t, file.Close())
//	file := must.Get(os.Open(name))(t)
package must

// A TB is a *testing.T, a *testing.B, or a *rapid.T.
type TB interface {
	Helper()
	Fatal(args ...any)
}

// Do ends the test if err is not nil.
func Do(t TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Get returns a function that returns v, or ends the test if err is not nil.
func Get[T any](v T, err error) func(TB) T {
	return func(t TB) T {
		t.Helper()
		Do(t, err)
		return v
	}
}
