package kafka

import (
	"fmt"
	"strconv"
	"time"
)

// TopicSpec is what a topic must look like.
type TopicSpec struct {
	Name        string
	Partitions  int
	Replication int
	// Retention is the least time for which records are kept.
	Retention time.Duration
	// BrokerTime: records are stamped by the broker when it takes them
	// (LogAppendTime).
	BrokerTime bool
}

// TopicState is what a topic looks like.
type TopicState struct {
	Exists      bool
	Partitions  int
	Replication int
	Config      map[string]string
}

// Finding is one difference between a spec and a state.
type Finding struct {
	Topic string `json:"topic"`
	What  string `json:"what"` // what is and what should be
	Mend  string `json:"mend"` // what topics apply does about it, or a person must
	// By is the change that mends it; at most one field is set, none if only a
	// person can.
	By Change `json:"-"`
}

// Change is one thing that Apply does to a topic.
type Change struct {
	Create     bool
	Partitions int    // raise to
	Key, Value string // set this
}

// Drift compares specs with states, by topic name, and returns what differs, in
// the order of the specs. Pure.
func Drift(specs []TopicSpec, states map[string]TopicState) []Finding {
	var all []Finding
	for _, spec := range specs {
		all = append(all, drift(spec, states[spec.Name])...)
	}
	return all
}

func drift(spec TopicSpec, state TopicState) []Finding {
	if !state.Exists {
		return []Finding{{spec.Name, "does not exist", "create it", Change{Create: true}}}
	}
	var all []Finding
	switch {
	case state.Partitions < spec.Partitions:
		all = append(all, Finding{spec.Name, fmt.Sprintf("has %d partitions, want %d", state.Partitions, spec.Partitions),
			"add partitions", Change{Partitions: spec.Partitions}})
	case state.Partitions > spec.Partitions:
		all = append(all, Finding{spec.Name, fmt.Sprintf("has %d partitions, want %d", state.Partitions, spec.Partitions),
			"partitions cannot be taken away: set partitions in topics.yaml to " + strconv.Itoa(state.Partitions), Change{}})
	}
	if state.Replication < spec.Replication {
		all = append(all, Finding{spec.Name, fmt.Sprintf("has %d replicas, want %d", state.Replication, spec.Replication),
			"reassign its partitions with your cluster's tools", Change{}})
	}
	for _, c := range spec.config() {
		have := state.Config[c.Key]
		if !c.ok(have) {
			all = append(all, Finding{spec.Name, fmt.Sprintf("%s is %q, want %s", c.Key, have, c.want()),
				"set it", Change{Key: c.Key, Value: c.Value}})
		}
	}
	return all
}

// wanted is one setting of a topic.
type wanted struct {
	Key, Value string
	atLeast    bool // a greater number is as good, and so is -1, for ever
}

// config lists the settings that a topic needs. Their reasons: compaction or a
// size bound would delete records that still wait; retention must outlast the
// wait and a long weekend; append time is what a record's release is computed
// from; and with three replicas, an acked record survives the loss of one.
func (s TopicSpec) config() []wanted {
	all := []wanted{
		{Key: "cleanup.policy", Value: "delete"},
		{Key: "retention.bytes", Value: "-1"},
		{Key: "retention.ms", Value: strconv.FormatInt(s.Retention.Milliseconds(), 10), atLeast: true},
	}
	if s.BrokerTime {
		all = append(all, wanted{Key: "message.timestamp.type", Value: "LogAppendTime"})
	}
	if s.Replication >= 3 {
		all = append(all,
			wanted{Key: "min.insync.replicas", Value: "2", atLeast: true},
			wanted{Key: "unclean.leader.election.enable", Value: "false"})
	}
	return all
}

func (w wanted) ok(have string) bool {
	if have == w.Value {
		return true
	}
	if !w.atLeast {
		return false
	}
	h, err := strconv.ParseInt(have, 10, 64)
	want, _ := strconv.ParseInt(w.Value, 10, 64)
	return err == nil && (h == -1 || h >= want)
}

func (w wanted) want() string {
	if w.atLeast {
		return "at least " + w.Value
	}
	return w.Value
}
