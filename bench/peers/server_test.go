package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestScript_SaysWhyItFailedInTheFirstLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "redis.sh")
	text := "#!/bin/sh\necho 'redis.sh: installing redis'\necho noise\necho 'redis.sh: no server on port 1; errors in /tmp/x/log, and its end:' >&2\nexit 1\n"
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	err := script(t.Context(), path, "start", "/tmp/x", "1")
	if err == nil || firstLine(err.Error()) != "redis.sh start: exit status 1: no server on port 1" || !strings.Contains(err.Error(), "noise") {
		t.Errorf("got %v", err)
	}
}

// Processes that a server has started count with it.
func TestProcessTree_HasThisProcess(t *testing.T) {
	tree := processTree(os.Getpid())
	if len(tree) == 0 || tree[0] != os.Getpid() || !alive(os.Getpid()) || cpuOf(os.Getpid()) < 0 {
		t.Errorf("tree %v", tree)
	}
}

func TestDisk_CountsTheFilesOfAFolder(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if mb := diskMB(dir); mb < 0 || mb > 2 {
		t.Errorf("%g MB", mb)
	}
}
