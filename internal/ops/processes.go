package ops

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/orderclose/orderclose/internal/wire"
)

const (
	// expectedFor is how long after its last record a process is expected to run. So one that was killed
	// is shown as gone for a day, unless another one takes its place.
	expectedFor = 24 * time.Hour
	// joinsWithin is how long a process may take from its start until it is a member of its groups.
	joinsWithin = 30 * time.Second
	// frozenAfter is how overdue a record must be for its owner to count as frozen. A rebalance ends sooner.
	frozenAfter = 10 * time.Second
)

// ProcessState says whether a process runs.
type ProcessState string

// The states of a process.
const (
	Present ProcessState = "present" // it is a member of a group, or has just announced itself
	Frozen  ProcessState = "frozen"  // it is a member, and its positions stand while records are overdue
	Gone    ProcessState = "gone"    // it is no member of any group, and has not said that it stops
)

// Process is a process that runs parts of the pipeline.
type Process struct {
	wire.Process
	State     ProcessState `json:"state"`
	Started   time.Time    `json:"started_at,omitzero"`   // its first record of the last week; zero: it has none
	Announced time.Time    `json:"announced_at,omitzero"` // when it last announced itself, by the brokers' clock; zero: it never did
	Seen      time.Time    `json:"last_seen_at,omitzero"` // when it was last seen in a group or announced itself; zero: not since it started
}

// processes returns the processes that run or should run, sorted by name; status was just read. Processes are known by their membership in groups, those
// that announce themselves each minute by that. If a group could not be read, none is Gone. complete says that all groups and announcements were read.
func (p Pipeline) processes(ctx context.Context, status Status) (all []Process, complete bool) {
	ctx, cancel := context.WithTimeout(ctx, factTimeout)
	defer cancel()
	var state ControlState
	known := false // what was announced
	if p.Control != nil {
		var err error
		state, err = p.Control.Read(ctx, time.Now()) // on an error it is empty
		known = err == nil
	}
	complete = true
	var members []string
	for _, t := range status.Topics {
		complete = complete && t.Problem == ""
		members = append(members, t.members...)
	}
	all = compareProcesses(state.Processes, members, time.Now())
	if !complete {
		all = slices.DeleteFunc(all, func(p Process) bool { return p.State == Gone })
	}
	return all, complete && known
}

// Present counts the processes that are present. Frozen ones are not.
func (r Status) Present() (n int) {
	for _, p := range r.Processes {
		if p.State == Present {
			n++
		}
	}
	return n
}

// compareProcesses compares what processes have announced with the members of groups. It is a pure function.
func compareProcesses(announced []Process, members []string, now time.Time) (all []Process) {
	for _, p := range announced {
		p.Seen = p.Announced
		switch {
		case slices.Contains(members, p.Name):
			p.State, p.Seen = Present, now
		case p.Ended || now.Sub(p.Announced) > expectedFor: //mutant:stopped-shown-gone
			continue
		case now.Sub(p.Announced) < max(joinsWithin, 2*time.Duration(p.EverySeconds)*time.Second):
			p.State = Present
		case slices.ContainsFunc(announced, func(o Process) bool { return o.Started.After(p.Announced) && place(o.Name) == place(p.Name) }):
			continue // another process has taken its place
		default:
			p.State = Gone
			if p.EverySeconds == 0 {
				p.Seen = time.Time{} // it announced itself only when it started
			}
		}
		all = append(all, p)
	}
	for _, name := range members {
		// of an older version, or without the right to announce itself
		if strings.Contains(name, "@") && !slices.ContainsFunc(all, func(p Process) bool { return p.Name == name }) {
			all = append(all, Process{Process: wire.Process{Name: name}, State: Present, Seen: now})
		}
	}
	slices.SortFunc(all, func(a, b Process) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// place returns the name of a process without its process id.
func place(name string) string {
	host, process, _ := strings.Cut(name, ":")
	_, port, _ := strings.Cut(process, ":")
	return host + ":" + port
}
