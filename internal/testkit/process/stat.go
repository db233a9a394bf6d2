package process

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of CPU times in /proc: USER_HZ is 100 on every Linux.
const tick = time.Second / 100

// Stat is what /proc says of a process.
type Stat struct {
	Parent int
	State  byte          // as ps prints it: 'Z' is a process that has ended
	CPU    time.Duration // user and system time
	Waited time.Duration // the same of children that have ended, which the process has waited for
}

// ReadStat reads /proc/PID/stat. It works on Linux only.
func ReadStat(pid int) (Stat, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Stat{}, err
	}
	return parseStat(text)
}

func parseStat(text []byte) (s Stat, err error) {
	// The name of the program is in brackets and may contain any character.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 15 {
		return s, fmt.Errorf("/proc/PID/stat reads %q", text)
	}
	s.State = fields[0][0]
	s.Parent, err = strconv.Atoi(fields[1])
	for i, into := range []*time.Duration{&s.CPU, &s.CPU, &s.Waited, &s.Waited} {
		ticks, notANumber := strconv.ParseInt(fields[11+i], 10, 64)
		if notANumber != nil {
			err = notANumber
		}
		*into += time.Duration(ticks) * tick
	}
	return s, err
}

// Alive reports whether a process runs.
func Alive(pid int) bool {
	s, err := ReadStat(pid)
	return err == nil && s.State != 'Z'
}

// Tree returns the given processes and all below them.
func Tree(roots ...int) (tree []int) {
	children := map[int][]int{}
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			if s, err := ReadStat(pid); err == nil {
				children[s.Parent] = append(children[s.Parent], pid)
			}
		}
	}
	for todo := roots; len(todo) > 0; todo = todo[1:] {
		tree = append(tree, todo[0])
		todo = append(todo, children[todo[0]]...)
	}
	return tree
}

// Field returns the number that follows a name in a file of /proc, such as 4 in the line "rchar: 4"; 0: the file has no such line.
func Field(path, name string) int64 {
	text, _ := os.ReadFile(path)
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			if fields := strings.Fields(rest); len(fields) > 0 {
				n, _ := strconv.ParseInt(fields[0], 10, 64)
				return n
			}
		}
	}
	return 0
}

// Used is what a process has used so far.
type Used struct {
	CPU  time.Duration // of the process, without its children
	Peak int64         // peak of resident memory, in bytes
}

// UsedBy returns what a process that runs has used so far. It works on Linux only.
func UsedBy(pid int) (Used, error) {
	s, err := ReadStat(pid)
	return Used{s.CPU, Field(fmt.Sprintf("/proc/%d/status", pid), "VmHWM:") << 10}, err
}
