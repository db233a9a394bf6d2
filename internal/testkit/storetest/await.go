package storetest

import (
	"testing"
	"time"
)

// Limit is how long a test waits for what must happen. No test passes or fails by a shorter time: on a busy machine anything may take a minute.
const Limit = 2 * time.Minute

// askEvery is longer than the 100 ms for which MariaDB and MySQL keep their list of transactions after a read.
const askEvery = 150 * time.Millisecond

// Await returns once is reports true. After Limit it fails the test with what is saw last.
func Await(t testing.TB, what string, is func() (seen string, done bool)) {
	t.Helper()
	last := ""
	for end := time.Now().Add(Limit); time.Now().Before(end); time.Sleep(askEvery) {
		seen, done := is()
		if done {
			return
		}
		last = seen
	}
	t.Fatalf("not within %v: %s; seen last: %s", Limit, what, last)
}
