package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/orderclose/orderclose/internal/testkit/process"
)

// cost is what a package or a kind of server took.
type cost struct {
	wall, cpu time.Duration
	processes int // servers that ran
}

// costs collects what packages and servers cost. It is safe for concurrent use.
type costs struct {
	dir  string // servers have their working folders below it
	file string // a line for each test program that has ended; see measure

	mu      sync.Mutex
	servers map[int]server // by process id
}

// server is what a server has used at the last look.
type server struct {
	kind string
	cpu  time.Duration
}

// measureProgram is the first argument with which go test calls this program, to run a test program.
const measureProgram = "measure"

// measure runs a test program, appends what it and its children have used to a file, and returns its exit code.
func measure(file string, command []string) int {
	runtime.LockOSThread() // Pdeathsig means the end of this thread
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	process.EndWithParent(cmd)
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT) // go test sends SIGQUIT after its -timeout
	began := time.Now()
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	go func() {
		for s := range signals {
			_ = cmd.Process.Signal(s)
		}
	}()
	err := cmd.Wait()
	dir, unknown := os.Getwd()
	line := fmt.Sprintf("%s\t%d\t%d\n", dir, time.Since(began), cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime())
	if f, cannot := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600); cannot == nil && unknown == nil {
		_, cannot = f.WriteString(line)
		if err := errors.Join(cannot, f.Close()); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	return exitCode(err)
}

// look notes what each server has used by now. What a server uses after the last look before its end is not seen: a second at most.
func (c *costs) look() {
	entries, _ := os.ReadDir("/proc")
	stats, kinds := map[int]process.Stat{}, map[int]string{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if kind := c.kind(pid); kind != "" {
			if s, err := process.ReadStat(pid); err == nil {
				stats[pid], kinds[pid] = s, kind
			}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.servers == nil {
		c.servers = map[int]server{}
	}
	for root, cpu := range trees(stats, kinds) {
		c.servers[root] = server{kinds[root], max(cpu, c.servers[root].cpu)}
	}
}

// trees sums what servers and their child processes have used, by the process id of the server. A child that has ended is in its parent's Waited.
func trees(stats map[int]process.Stat, kinds map[int]string) map[int]time.Duration {
	sums := map[int]time.Duration{}
	for pid, s := range stats {
		root := pid
		for kinds[stats[root].Parent] == kinds[pid] {
			root = stats[root].Parent
		}
		sums[root] += s.CPU + s.Waited
	}
	return sums
}

// kind returns the name of the program of a server of the tests; empty: the process is none.
func (c *costs) kind(pid int) string {
	dir := fmt.Sprintf("/proc/%d/", pid)
	cwd, err := os.Readlink(dir + "cwd")
	if err != nil || !strings.HasPrefix(cwd, c.dir+"/") {
		return ""
	}
	name, err := os.ReadFile(dir + "comm")
	if err != nil {
		return ""
	}
	return serverKinds[strings.TrimSpace(string(name))]
}

// serverKinds are the programs of servers. Other programs are children of a test, which counts them.
var serverKinds = map[string]string{
	"java": "kafka", "mariadbd": "mariadb", "mysqld": "mysql", "postgres": "postgresql", "redis-server": "redis",
	"redis-sentinel": "redis", "prometheus": "prometheus", "prometheus-aler": "alertmanager",
}

// packages returns what each test program took, by the folder of its package.
func (c *costs) packages() (map[string]cost, error) {
	text, err := os.ReadFile(c.file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil // none has run
	}
	root, errRoot := os.Getwd()
	if err := errors.Join(err, errRoot); err != nil {
		return nil, err
	}
	all := map[string]cost{}
	for line := range strings.Lines(string(text)) {
		var dir string
		var wall, cpu int64
		if _, err := fmt.Sscanf(line, "%s\t%d\t%d", &dir, &wall, &cpu); err != nil {
			return nil, fmt.Errorf("%s: %q: %w", c.file, line, err)
		}
		if inside, err := filepath.Rel(root, dir); err == nil {
			dir = inside
		}
		all[dir] = cost{wall: time.Duration(wall), cpu: time.Duration(cpu)}
	}
	return all, nil
}

// small is the CPU below which a package is summed up with others.
const small = time.Second

// print prints the table. Used is what go test and all its child processes have used.
func (c *costs) print(w io.Writer, wall, used time.Duration) {
	packages, err := c.packages()
	if err != nil {
		fmt.Fprintln(w, err)
		return
	}
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(name, of string, wall, cpu time.Duration) {
		text := "-"
		if wall > 0 {
			text = fmt.Sprintf("%.1f", wall.Seconds())
		}
		fmt.Fprintf(out, "%s\t%s\t%.1f\t  %s\t\n", of, text, cpu.Seconds(), name)
	}
	fmt.Fprintln(out, "\nof\twall s\tCPU s\t  name\t")
	var tests, others, servers time.Duration
	for _, dir := range byCPU(packages) {
		p := packages[dir]
		tests += p.cpu
		if p.cpu < small {
			others += p.cpu
			continue
		}
		row(dir, "package", p.wall, p.cpu)
	}
	row("all other packages", "package", 0, others)
	kinds := c.kinds()
	for _, kind := range byCPU(kinds) {
		servers += kinds[kind].cpu
		row(fmt.Sprintf("%s (%d)", kind, kinds[kind].processes), "server", 0, kinds[kind].cpu)
	}
	row("compiling and linking", "go", 0, max(used-tests, 0))
	row("tests and servers, without compiling", "all", wall, tests+servers)
	out.Flush()
}

// kinds sums up the servers of each kind.
func (c *costs) kinds() map[string]cost {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := map[string]cost{}
	for _, s := range c.servers {
		all[s.kind] = cost{cpu: all[s.kind].cpu + s.cpu, processes: all[s.kind].processes + 1}
	}
	return all
}

// byCPU returns the keys, that of the highest CPU first.
func byCPU(all map[string]cost) []string {
	return slices.SortedFunc(maps.Keys(all), func(a, b string) int {
		return cmp.Or(cmp.Compare(all[b].cpu, all[a].cpu), cmp.Compare(a, b))
	})
}
