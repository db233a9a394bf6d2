package kafka

import (
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// TestSessionConn_AuthenticatesAgainBetweenRequests: not within a request that is written in parts, and
// not before the last quarter of the session.
func TestSessionConn_AuthenticatesAgainBetweenRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		defer client.Close()
		go func() {
			b := make([]byte, 3) // a request of three bytes gets an answer of one
			for n := 0; ; {
				m, err := server.Read(b[n:])
				if err != nil {
					return
				}
				if n += m; n == len(b) {
					server.Write(b[:1])
					n = 0
				}
			}
		}()
		again, within := 0, false
		c := newSessionConn(client, 10*time.Second, func() (time.Duration, error) {
			if again++; within {
				t.Error("authenticated again within a request")
			}
			return 10 * time.Second, nil
		})
		request := func() {
			for _, part := range []string{"a", "bc"} {
				within = part == "bc"
				if _, err := c.Write([]byte(part)); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Duration(3-len(part)) * time.Second / 3)
			}
			if _, err := c.Read(make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
		}
		for range 25 { // a second each
			request()
		}
		if again != 3 {
			t.Errorf("authenticated again %d times in 25 s, want 3 times", again)
		}
		time.Sleep(time.Minute)
		if request(); again != 4 {
			t.Errorf("after the session's end: %d times, want 4 times", again)
		}
	})
}
