package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// ticksPerSecond is the unit of CPU times in /proc: USER_HZ is 100 on every Linux.
const ticksPerSecond = 100

// processStat is a line of /proc/PID/stat.
type processStat struct {
	parent int
	state  byte
	own    float64 // CPU seconds of the process
	cpu    float64 // the same, and of children that it has waited for
}

func readStat(pid int) (processStat, bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return processStat{}, false
	}
	// The name of the program is in brackets and may contain any character.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 15 {
		return processStat{}, false
	}
	s := processStat{state: fields[0][0]}
	s.parent, _ = strconv.Atoi(fields[1])
	for i, f := range fields[11:15] { // user, system, and both of the children
		ticks, _ := strconv.ParseFloat(f, 64)
		s.cpu += ticks / ticksPerSecond
		if i == 1 {
			s.own = s.cpu
		}
	}
	return s, true
}

func alive(pid int) bool {
	s, ok := readStat(pid)
	return ok && s.state != 'Z'
}

// processTree returns the processes below the roots, and the roots.
func processTree(roots ...int) []int {
	children := map[int][]int{}
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			if s, ok := readStat(pid); ok {
				children[s.parent] = append(children[s.parent], pid)
			}
		}
	}
	var tree []int
	for todo := roots; len(todo) > 0; todo = todo[1:] {
		tree = append(tree, todo[0])
		todo = append(todo, children[todo[0]]...)
	}
	return tree
}

// cpuOf returns the CPU seconds of processes and their children.
func cpuOf(roots ...int) (seconds float64) {
	for _, pid := range processTree(roots...) {
		if s, ok := readStat(pid); ok {
			seconds += s.cpu
		}
	}
	return seconds
}

// memoryOf returns the resident memory of processes and their children in MB. Memory that
// processes share counts once.
func memoryOf(roots ...int) (mb float64) {
	for _, pid := range processTree(roots...) {
		mb += proportionalMB(pid)
	}
	return mb
}

func proportionalMB(pid int) float64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	for line := range strings.Lines(string(text)) {
		if kb, ok := strings.CutPrefix(line, "Pss:"); ok {
			n, _ := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(kb), "kB")), 64)
			return n / 1024
		}
	}
	return 0
}

// idleCPU returns the seconds in which the machine's cores had nothing to do, since its start. The
// kernel measures idle time, but counts the busy time of /proc/stat by ticks, and so misses a
// part of programs that run for less than a tick.
func idleCPU() float64 {
	text, _ := os.ReadFile("/proc/stat")
	line, _, _ := strings.Cut(string(text), "\n")
	fields := strings.Fields(line) // cpu user nice system idle iowait …
	seconds := func(i int) float64 {
		if i >= len(fields) {
			return 0
		}
		ticks, _ := strconv.ParseFloat(fields[i], 64)
		return ticks / ticksPerSecond
	}
	return seconds(4) + seconds(5)
}

// diskMB returns the space that the files in a folder take on the disk.
func diskMB(dir string) float64 {
	var bytes int64
	filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() {
			bytes += allocated(entry)
		}
		return nil
	})
	return float64(bytes) / (1 << 20)
}

// allocated returns the bytes on disk of a file, which are less than its size if it has holes.
func allocated(entry fs.DirEntry) int64 {
	info, err := entry.Info()
	if err != nil { // the server has just deleted the file
		return 0
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return stat.Blocks * 512
	}
	return info.Size()
}
