package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestDisk_CountsTheFilesOfAFolder(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if mb := diskMB(dir); mb < 0 || mb > 2 {
		t.Errorf("%g MB", mb)
	}
	if cpuOf(os.Getpid()) < 0 || memoryOf(os.Getpid()) <= 0 {
		t.Errorf("%g CPU-s, %g MB", cpuOf(os.Getpid()), memoryOf(os.Getpid()))
	}
}
