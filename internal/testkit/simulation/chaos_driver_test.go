package simulation

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/orderclose/orderclose/internal/testkit/must"
)

// The driver plays many worlds in worker processes, one for each core. So a world that panics
// or hangs ends no other. Each task, and each answer of a worker, is one line of JSON.

// task is a world to play: a seed, and the indices of events to leave out.
type task struct {
	Seed uint64
	Drop []int
}

// answerMark begins the line of an answer, because a test prints other lines too.
const answerMark = "CHAOS "

// worldTime is how long a world may take in real time; CHAOS_WORLD_TIME overrides it. Most worlds take a tenth of a second.
var worldTime = func() time.Duration {
	if d, err := time.ParseDuration(os.Getenv("CHAOS_WORLD_TIME")); err == nil {
		return d
	}
	return time.Minute
}()

// TestChaosWorker plays the tasks of a driver.
func TestChaosWorker(t *testing.T) {
	if os.Getenv("CHAOS") != "worker" {
		return // only for make chaos
	}
	tasks := json.NewDecoder(os.Stdin)
	for {
		var k task
		if tasks.Decode(&k) != nil {
			return
		}
		answer := must.Get(json.Marshal(playSeed(t, makePlan(k.Seed, chaosOnly...).without(k.Drop))))(t)
		fmt.Printf("\n%s%s\n", answerMark, answer)
	}
}

// worker is a process that plays tasks.
type worker struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Scanner
	stderr  bytes.Buffer
	printed []string // the last lines that are no answers
}

func startWorker() (*worker, error) {
	w := &worker{}
	w.cmd = exec.Command(os.Args[0], "-test.run=^TestChaosWorker$", "-test.timeout=0")
	w.cmd.Env = append(os.Environ(), "CHAOS=worker", "GOMAXPROCS=1", "GOGC=400", "GODEBUG=asyncpreemptoff=1")
	w.cmd.Stderr = &w.stderr
	var err error
	if w.in, err = w.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	w.out = bufio.NewScanner(out)
	w.out.Buffer(nil, 1<<24)
	return w, w.cmd.Start()
}

// play plays a task. It returns false if the worker has ended.
func (w *worker) play(k task) (*result, bool) {
	w.printed = nil
	watchdog := time.AfterFunc(worldTime, func() { _ = w.cmd.Process.Signal(syscall.SIGQUIT) })
	defer watchdog.Stop()
	if err := json.NewEncoder(w.in).Encode(k); err == nil {
		for w.out.Scan() {
			if line, ok := strings.CutPrefix(w.out.Text(), answerMark); ok {
				r := &result{}
				if json.Unmarshal([]byte(line), r) == nil {
					return r, true
				}
			}
			if w.printed = append(w.printed, w.out.Text()); len(w.printed) > 40 {
				w.printed = slices.Delete(w.printed, 20, 21)
			}
		}
	}
	_ = w.cmd.Wait()
	output := strings.Join(w.printed, "\n") + "\n" + w.stderr.String()
	kind := "crash"
	if !watchdog.Stop() {
		kind = "hang"
	}
	return &result{Seed: k.Seed, Violations: []violation{{kind, output[:min(len(output), 3000)]}}}, false
}

func (w *worker) stop() {
	_ = w.in.Close()
	_ = w.cmd.Wait()
}

// chaosSummary is the last line of make chaos.
type chaosSummary struct {
	Seeds   int     `json:"seeds"`
	Orders  int     `json:"orders"`
	Early   int     `json:"early"`
	Lost    int     `json:"lost"`
	Double  int     `json:"double"`
	Open    int     `json:"open"`
	Seconds float64 `json:"seconds"`
}

// drive plays the worlds that the environment selects. It prints failures to stderr and the summary to stdout. It returns the exit code.
func drive() int {
	first, n := uint64(0), uint64(500)
	if s, err := strconv.ParseUint(os.Getenv("SEEDS"), 10, 64); err == nil {
		n = s
	}
	if s, err := strconv.ParseUint(os.Getenv("FIRST"), 10, 64); err == nil {
		first = s
	}
	if s, err := strconv.ParseUint(os.Getenv("SEED"), 10, 64); err == nil {
		first, n = s, 1
	}
	began := time.Now()
	var mu sync.Mutex
	var sum chaosSummary
	next, failed := first, []*result{}
	one := func(r *result) {
		mu.Lock()
		defer mu.Unlock()
		sum.Seeds++
		sum.Orders, sum.Early, sum.Lost, sum.Double, sum.Open = sum.Orders+r.Orders, sum.Early+r.Early, sum.Lost+r.Lost, sum.Double+r.Double, sum.Open+r.Open
		if r.failed() {
			failed = append(failed, r)
			fmt.Fprintf(os.Stderr, "seed %d failed: %.300s\n", r.Seed, r.Violations[0].String())
		}
	}
	var workers sync.WaitGroup
	for range runtime.NumCPU() {
		workers.Go(func() {
			var w *worker
			for {
				mu.Lock()
				seed := next
				next++
				mu.Unlock()
				if seed >= first+n {
					break
				}
				w = playIn(w, task{Seed: seed}, one)
			}
			if w != nil {
				w.stop()
			}
		})
	}
	workers.Wait()
	sum.Seconds = time.Since(began).Round(100 * time.Millisecond).Seconds()
	slices.SortFunc(failed, func(a, b *result) int { return int(a.Seed) - int(b.Seed) })
	for _, r := range failed[:min(len(failed), maxShrunk)] {
		explain(r)
	}
	line, _ := json.Marshal(sum)
	fmt.Println(string(line))
	if len(failed) > 0 {
		return 1
	}
	return 0
}

// maxShrunk bounds the failing seeds that are shrunk. Each takes as long as some dozens of worlds.
const maxShrunk = 3

// playIn plays a task in a worker, which it starts if w is nil. It returns the worker, or nil if the worker has ended.
func playIn(w *worker, k task, answer func(*result)) *worker {
	if w == nil {
		var err error
		if w, err = startWorker(); err != nil {
			answer(&result{Seed: k.Seed, Violations: []violation{{"crash", err.Error()}}})
			return nil
		}
	}
	r, alive := w.play(k)
	answer(r)
	if !alive {
		return nil
	}
	return w
}

// String implements fmt.Stringer.
func (v violation) String() string { return v.Kind + ": " + v.Text }

// explain shrinks a failing world and prints the remaining events.
func explain(r *result) {
	p := makePlan(r.Seed, chaosOnly...)
	fmt.Fprintf(os.Stderr, "\nseed %d: %s; replay it with: make chaos SEED=%d\n", r.Seed, p.describe(), r.Seed)
	s := &shrinking{kind: r.Violations[0].Kind, plan: p, last: r}
	defer s.stop()
	failsAgain := false
	for n := 0; n < 3 && !failsAgain; n++ {
		failsAgain = s.fails(nil)
	}
	if !failsAgain {
		fmt.Fprintf(os.Stderr, "  it did not fail again in three more plays\n")
	} else {
		s.shrink()
	}
	for _, v := range s.last.Violations {
		fmt.Fprintf(os.Stderr, "  %s\n", v)
	}
	fmt.Fprintf(os.Stderr, "  with these of %d events (CHAOS_DROP=%s leaves out the others):\n", len(p.Events), strings.Trim(fmt.Sprint(s.dropped), "[]"))
	for _, e := range p.without(s.dropped).Events {
		fmt.Fprintf(os.Stderr, "    %s\n", e)
	}
}

// shrinking leaves out events of a world as long as the world still fails in the same way.
type shrinking struct {
	kind    string
	plan    *plan
	dropped []int
	last    *result // of the smallest world that has failed
	worker  *worker
}

// fails plays the world without some events and reports whether it fails in the same way.
func (s *shrinking) fails(drop []int) (failed bool) {
	s.worker = playIn(s.worker, task{s.plan.Seed, drop}, func(r *result) {
		if failed = r.failed() && r.Violations[0].Kind == s.kind; failed {
			s.last = r
		}
	})
	return failed
}

// shrink leaves out halves of the events, then quarters, and so on down to single events, until no event can be left out.
func (s *shrinking) shrink() {
	for size := (len(s.plan.Events) + 1) / 2; size >= 1; {
		progress := false
		for from := 0; from < len(s.plan.Events); {
			var more []int
			at := from
			for ; at < len(s.plan.Events) && len(more) < size; at++ {
				if !slices.Contains(s.dropped, at) {
					more = append(more, at)
				}
			}
			from = at
			if len(more) > 0 && s.fails(slices.Concat(s.dropped, more)) {
				s.dropped, progress = slices.Concat(s.dropped, more), true
			}
		}
		if size > 1 {
			size /= 2
		} else if !progress {
			break
		}
	}
	slices.Sort(s.dropped)
}

func (s *shrinking) stop() {
	if s.worker != nil {
		s.worker.stop()
	}
}
