package pipeline

import (
	"fmt"
	"os"
	"testing"
)

func TestProcessName_NamesRolesHostProcessAndPort(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Skip(err)
	}
	process := fmt.Sprintf("@%s:%d", host, os.Getpid())
	if got, want := processName([]Role{Relay}, "127.0.0.1:9464"), "relay"+process+":9464"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := processName([]Role{Closer, Relay}, ""), "closer+relay"+process; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
