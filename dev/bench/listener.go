package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// listening is the state of a listening socket in /proc/net/tcp.
const listening = "0A"

// listenerOf returns the process that listens on an address of this machine. It reads
// /proc, so it works on Linux only.
func listenerOf(address string) (pid int, err error) {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return 0, err
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		return 0, err
	}
	sockets := map[string]bool{}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, _ := os.ReadFile(table)
		for _, inode := range inodesOf(string(text), number) {
			sockets["socket:["+inode+"]"] = true
		}
	}
	files, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, file := range files {
		if to, err := os.Readlink(file); err == nil && sockets[to] {
			return strconv.Atoi(strings.Split(file, "/")[2])
		}
	}
	return 0, fmt.Errorf("no process of ours listens on %s: its CPU time cannot be measured", address)
}

// inodesOf returns the sockets that listen on a port, from the text of /proc/net/tcp.
func inodesOf(table string, port int) (inodes []string) {
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		if len(fields) > 9 && fields[3] == listening && strings.HasSuffix(fields[1], fmt.Sprintf(":%04X", port)) {
			inodes = append(inodes, fields[9])
		}
	}
	return inodes
}
