package clients

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"testing"
	"time"

	"github.com/orderclose/orderclose/internal/signature"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

const secret, otherSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oDc2FsdHNhbHQ="

// clients are the commands of the examples. Each takes: record ID, or verify SECRET ID TIMESTAMP SIGNATURES with the body on stdin.
var clients = map[string][]string{
	"java":   {"java"},
	"node":   {"node", "node/orders.mjs"},
	"php":    {"php", "php/orders.php"},
	"python": {"python3", "python/orders.py"},
}

func TestClients(t *testing.T) {
	for language, command := range clients {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			if _, err := exec.LookPath(command[0]); err != nil {
				t.Skipf("%s is not installed", command[0])
			}
			if language == "java" {
				command = []string{"java", "-cp", compiled(t), "Orders"}
			}
			run := func(stdin []byte, args ...string) ([]byte, error) {
				cmd := exec.CommandContext(t.Context(), command[0], append(command[1:len(command):len(command)], args...)...)
				cmd.Stdin = bytes.NewReader(stdin)
				return cmd.Output()
			}
			checkRecord(t, run)
			checkSignatures(t, run)
		})
	}
}

// compiled returns the folder of the classes of java/Orders.java.
func compiled(t *testing.T) string {
	if _, err := exec.LookPath("javac"); err != nil {
		t.Skip("javac is not installed")
	}
	dir := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "javac", "-d", dir, "java/Orders.java").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return dir
}

func checkRecord(t *testing.T, run func(stdin []byte, args ...string) ([]byte, error)) {
	out, err := run(nil, "record", "ORD-20260301-000017")
	var r struct {
		Key, Value string
		Headers    map[string]string
	}
	err = errors.Join(err, json.Unmarshal(out, &r))
	must.That(t, err == nil, "%v\n%s", err, out)
	m := wire.Message{Key: []byte(r.Key), Value: []byte(r.Value)}
	for name, value := range r.Headers {
		m.Headers = append(m.Headers, wire.Header{Key: name, Value: []byte(value)})
	}
	got, err := m.Decode()
	must.That(t, err == nil, "%v\n%s", err, out)
	delay := got.Order.Due.Sub(got.Order.CreatedAt)
	expect.That(t, got.Order.ID == "ORD-20260301-000017" && delay == 5*time.Minute && got.Release.Equal(got.Order.Due), "%+v: due after %v", got, delay)
	off := time.Since(got.Order.CreatedAt)
	expect.That(t, off >= 0 && off <= time.Minute, "created %v ago", off)
}

func checkSignatures(t *testing.T, run func(stdin []byte, args ...string) ([]byte, error)) {
	body := []byte(`{"orders":[{"order_id":"订单-17"}]}`)
	keys := must.Get(signature.Parse([]string{otherSecret, secret}))(t)
	right := func(at time.Time) []string {
		h := http.Header{}
		keys.Sign(h, "msg_1", at, body)
		return []string{"msg_1", h.Get("webhook-timestamp"), h.Get("webhook-signature")}
	}
	now, old := right(time.Now()), right(time.Now().Add(-6*time.Minute))
	for _, c := range []struct {
		what string
		args []string
		body []byte
		ok   bool
	}{
		{"a right signature", now, body, true},
		{"another body", now, append(body, ' '), false},
		{"an old request", old, body, false},
		{"another time", []string{"msg_1", fmt.Sprint(time.Now().Unix() - 1), now[2]}, body, false},
		{"another id", []string{"msg_2", now[1], now[2]}, body, false},
		{"no signature", []string{"msg_1", now[1], "v1,"}, body, false},
		{"no time", []string{"msg_1", "now", now[2]}, body, false},
	} {
		_, err := run(c.body, append([]string{"verify", secret}, c.args...)...)
		expect.That(t, (err == nil) == c.ok, "%s: accepted %v: %v", c.what, err == nil, err)
	}
}
