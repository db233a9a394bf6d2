package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/orderclose/orderclose/internal/testkit/process"
)

// ticksPerSecond is the unit of CPU times in /proc/stat: USER_HZ is 100 on every Linux.
const ticksPerSecond = 100

// kernelThreads is the parent of the kernel's threads. They write to the disk what the servers sync, so they count as no other program.
const kernelThreads = 2

// cpuOf returns the CPU seconds of processes and their children.
func cpuOf(roots ...int) (seconds float64) {
	for _, pid := range process.Tree(roots...) {
		if s, err := process.ReadStat(pid); err == nil {
			seconds += (s.CPU + s.Waited).Seconds()
		}
	}
	return seconds
}

// memoryOf returns the resident memory of processes and their children in MB. Memory that
// processes share counts once.
func memoryOf(roots ...int) (mb float64) {
	for _, pid := range process.Tree(roots...) {
		mb += proportionalMB(pid)
	}
	return mb
}

func proportionalMB(pid int) float64 {
	return float64(process.Field(fmt.Sprintf("/proc/%d/smaps_rollup", pid), "Pss:")) / 1024
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
