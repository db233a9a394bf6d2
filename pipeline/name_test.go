package pipeline

import (
	"fmt"
	"os"
	"testing"

	"github.com/orderclose/orderclose/internal/testkit/expect"
)

func TestProcessName_NamesRolesHostProcessAndPort(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Skip(err)
	}
	process := fmt.Sprintf("@%s:%d", host, os.Getpid())
	got, want := (&Options{Listen: "127.0.0.1:9464"}).ProcessName([]Role{Relay}), "relay"+process+":9464"
	expect.That(t, got == want, "%s, want %s", got, want)
	if got, want := (&Options{}).ProcessName([]Role{Closer, Relay}), "closer+relay"+process; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := (&Options{Instance: "relay-0", Listen: "127.0.0.1:9464"}).ProcessName([]Role{Relay}), "relay@relay-0:9464"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
