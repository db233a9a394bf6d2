package httpcall

import (
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose/internal/testkit"
)

// The connection is closed even if the server has no timeouts.
func TestReceive_ASlowBodyDoesNotOccupyTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		listener := testkit.Listen()
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			Receive(w, r, []string{"a secret that is long enough for it"}, time.Now(), new(int))
		})}
		served := make(chan struct{})
		go func() { defer close(served); server.Serve(listener) }()
		client, err := listener.Transport().DialContext(t.Context(), "tcp", "x")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(client, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9999\r\n\r\nslow"); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		client.SetReadDeadline(began.Add(time.Minute))
		if _, err := io.Copy(io.Discard, client); err != nil || time.Since(began) > readTimeout+time.Second {
			t.Errorf("the connection ends after %v with %v", time.Since(began), err)
		}
		client.Close()
		server.Close()
		<-served
	})
}
