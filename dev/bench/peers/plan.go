package main

import (
	"math/rand/v2"
	"time"
)

// workload is what one measurement does.
type workload struct {
	name       string
	messages   int
	perSecond  int // 0: as fast as accepted
	batch      int // messages in a call of publish
	publishers int // calls at once
	shortest   time.Duration
	longest    time.Duration
	atOnce     bool // all are due at one instant
	warmUp     int  // messages before the measurement that do not count
	kill       bool // W4
	cut        bool // W7
	watch      time.Duration
	rounds     int
}

// maxWait is how long after the last due time a message is lost that has not arrived. asynq and
// the pollers of this comparison recover within it.
const maxWait = 100 * time.Second

// workloadOf returns the sizes of a workload. A quick one is a part of the full one.
func workloadOf(name string, quick bool) workload {
	w := workload{name: name, messages: 20_000, perSecond: 1000, batch: 1, publishers: 64, shortest: 5 * time.Second, longest: 5 * time.Second,
		warmUp: 20_000, rounds: 1}
	if quick {
		w.messages, w.warmUp = 5000, 3000
	}
	switch name {
	case "w2":
		w.messages, w.perSecond, w.batch, w.publishers, w.atOnce = 100_000, 0, 100, 16, true
		w.warmUp = 20_000
	case "w3":
		w.messages, w.shortest, w.longest = 10_000, time.Second, 10*time.Second
		if quick {
			w.messages = 5000
		}
	case "w4":
		w.kill = true
		w.warmUp = 5000
		if quick { // the kill must come after the first due time
			w.messages, w.warmUp = 14_000, 1000
		}
	case "w5":
		w.messages, w.rounds = 100_000, 5
		if quick {
			w.messages, w.rounds = 20_000, 1
		}
	case "w6":
		w.messages, w.perSecond, w.batch, w.publishers, w.warmUp = 1_000_000, 0, 100, 16, 1000
		w.shortest, w.longest, w.watch = 30*time.Minute, 30*time.Minute, time.Minute
		if quick {
			w.messages, w.watch = 50_000, 10*time.Second
		}
	case "w7":
		w.cut = true
		w.warmUp = 5000
		w.shortest, w.longest = 10*time.Second, 10*time.Second
		if quick {
			w.messages, w.warmUp = 10_000, 1000
		}
	}
	return w
}

// warmUps returns what is published before the measurement: a few messages, so that everything is
// connected, and then the rest. They are of the same kind and have the same delays, so each queue or
// topic is warm, but for W2 and W6, whose messages would wait too long.
func (w workload) warmUps() []workload {
	few, rest := w, w
	few.atOnce, rest.atOnce = false, false
	few.messages = min(100, w.warmUp)
	few.shortest, few.longest = time.Second, time.Second
	rest.messages = w.warmUp - few.messages
	if w.atOnce || w.shortest > 5*time.Second {
		rest.shortest, rest.longest = 2*time.Second, 2*time.Second
	}
	return []workload{few, rest}
}

// sameDelay returns the delay that all messages have, or 0.
func (w workload) sameDelay() time.Duration {
	if w.shortest == w.longest && !w.atOnce {
		return w.shortest
	}
	return 0
}

// delays returns the delay of each message, in whole seconds, the same in each run.
func (w workload) delays() []time.Duration {
	random := rand.New(rand.NewPCG(1, 2))
	steps := int((w.longest-w.shortest)/time.Second) + 1
	all := make([]time.Duration, w.messages)
	for i := range all {
		all[i] = w.shortest + time.Duration(random.IntN(steps))*time.Second
	}
	return all
}
