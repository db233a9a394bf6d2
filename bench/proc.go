package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// tickLength is the unit of CPU times in /proc: USER_HZ is 100 on every Linux.
const tickLength = 10 * time.Millisecond

// usedSoFar returns the resources that a running process has used. It reads /proc, so
// it works on Linux only.
func usedSoFar(pid int) (usage, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return usage{}, err
	}
	cpu, err := cpuOf(string(stat))
	return usage{cpu, residentPeak(strconv.Itoa(pid))}, err
}

// cpuOf reads user and system time from /proc/PID/stat. They are the 12th and 13th
// field after the program's name, which is in brackets and may contain any character.
func cpuOf(stat string) (time.Duration, error) {
	_, rest, _ := cutLast(stat, ")")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/PID/stat reads %q", stat)
	}
	user, err1 := strconv.ParseInt(fields[11], 10, 64)
	system, err2 := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * tickLength, errors.Join(err1, err2)
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// residentPeak returns the peak of a process's resident memory in bytes; 0 on a
// system without /proc. process is a number or "self".
func residentPeak(process string) int64 {
	status, _ := os.ReadFile("/proc/" + process + "/status")
	for line := range strings.Lines(string(status)) {
		if kb, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			n, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(kb), " kB"), 10, 64)
			return n << 10
		}
	}
	return 0
}

// bytesRead returns what a process has read from files and connections since its start; 0 on a
// system without /proc.
func bytesRead(pid int) int64 {
	counters, _ := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	for line := range strings.Lines(string(counters)) {
		if n, ok := strings.CutPrefix(line, "rchar: "); ok {
			read, _ := strconv.ParseInt(strings.TrimSpace(n), 10, 64)
			return read
		}
	}
	return 0
}
