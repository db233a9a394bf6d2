package kafka

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// TestDialUntil_AReadEndsSoonAfterItsContext: a join may wait for slow members for
// longer than a process that was told to stop may take.
func TestDialUntil_AReadEndsSoonAfterItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, client := net.Pipe()
		defer server.Close()
		c, err := New(Options{Brokers: []string{"127.0.0.1:1"}, Dial: func(context.Context, string, string) (net.Conn, error) { return client, nil }})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		conn, err := c.dialUntil(ctx)(t.Context(), "tcp", "127.0.0.1:1")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(time.Hour)) // the library's own
		time.AfterFunc(time.Minute, cancel)
		begin := time.Now()
		if _, err := conn.Read(make([]byte, 1)); err == nil {
			t.Error("read something")
		}
		if took := time.Since(begin); took != time.Minute+leaveTimeout {
			t.Errorf("the read ended after %v", took)
		}
	})
}
