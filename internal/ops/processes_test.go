package ops

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/orderclose/orderclose/internal/wire"
)

func TestCompareProcesses_SaysWhichShouldRunAndDoNot(t *testing.T) {
	ago := func(name string, d time.Duration) Process {
		return Process{Process: wire.Process{Name: name}, Started: noon.Add(-d), Announced: noon.Add(-d)}
	}
	each := func(p Process, started time.Duration) Process { // a minute
		p.EverySeconds, p.Started = 60, noon.Add(-started)
		return p
	}
	ended := ago("relay@h:3:9464", time.Minute)
	ended.Ended = true
	for what, c := range map[string]struct {
		announced []Process
		members   []string
		want      []string
	}{
		"nobody":                   {nil, nil, nil},
		"a member":                 {[]Process{ago("closer@h:1:9464", time.Minute)}, []string{"closer@h:1:9464", "closer@h:1:9464"}, []string{"closer@h:1:9464 present"}},
		"a member that cannot say": {nil, []string{"closer@h:1", "some-other-client"}, []string{"closer@h:1 present"}},
		"killed":                   {[]Process{ago("relay@h:1:9464", time.Hour), ago("relay@h:2:9465", time.Hour)}, []string{"relay@h:2:9465"}, []string{"relay@h:1:9464 gone", "relay@h:2:9465 present"}},
		"stopped":                  {[]Process{ended}, nil, nil},
		"just started":             {[]Process{ago("relay@h:1:9464", time.Second)}, nil, []string{"relay@h:1:9464 present"}},
		"killed and started again": {[]Process{ago("relay@h:1:9464", time.Hour), ago("relay@h:7:9464", time.Minute)}, []string{"relay@h:7:9464"}, []string{"relay@h:7:9464 present"}},
		"killed beside another":    {[]Process{ago("relay@h:1", time.Hour), each(ago("relay@h:2", time.Minute), 3*time.Hour)}, []string{"relay@h:2"}, []string{"relay@h:1 gone", "relay@h:2 present"}},
		"in no group":              {[]Process{each(ago("outbox@h:1:9464", 90*time.Second), time.Hour)}, nil, []string{"outbox@h:1:9464 present"}},
		"in no group, and silent":  {[]Process{each(ago("outbox@h:1:9464", 2*time.Minute), time.Hour)}, nil, []string{"outbox@h:1:9464 gone"}},
		"in no group, and stopped": {[]Process{each(ended, time.Hour)}, nil, nil},
		"killed long ago":          {[]Process{ago("relay@h:1:9464", expectedFor+time.Second)}, nil, nil},
	} {
		var got []string
		for _, p := range compareProcesses(c.announced, c.members, noon) {
			got = append(got, fmt.Sprintf("%s %s", p.Name, p.State))
			want := p.Announced
			switch {
			case slices.Contains(c.members, p.Name):
				want = noon
			case p.State == Gone && p.EverySeconds == 0:
				want = time.Time{} // it has announced itself once, when it started
			}
			if !p.Seen.Equal(want) {
				t.Errorf("%s: %s was seen at %v, want %v", what, p.Name, p.Seen, want)
			}
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
}

// The console polls: it knows until when a process was a member.
func TestFollow_KeepsWhenAProcessWasLastSeen(t *testing.T) {
	seen := func(state ProcessState, at time.Time) Status {
		return Status{At: at, Processes: []Process{{Process: wire.Process{Name: "relay@h:1"}, State: state, Announced: noon, Seen: at}}}
	}
	r := seen(Gone, noon)
	r.Follow(seen(Present, noon.Add(time.Minute)))
	if p := r.Processes[0]; !p.Seen.Equal(noon.Add(time.Minute)) || r.Present() != 0 {
		t.Errorf("%+v", p)
	}
	r = seen(Present, noon.Add(time.Hour))
	r.Follow(seen(Present, noon))
	if p := r.Processes[0]; !p.Seen.Equal(noon.Add(time.Hour)) || r.Present() != 1 {
		t.Errorf("%+v", p)
	}
}
