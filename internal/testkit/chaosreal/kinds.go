//go:build linux

package main

import (
	"slices"
	"time"
)

// kind is a kind of fault.
type kind struct {
	name string
	does string // what it does, and how it is undone
	// least and most bound how long it lasts, without the time that undoing takes.
	least, most time.Duration
	// on is what it disturbs. Faults on the same thing are played one after another.
	on string
	// loses says that records may be deleted that no stage has processed.
	loses bool
	// closesOnly says that these are records of the close topic: events are not lost.
	closesOnly bool
	// forgets says that some databases may lose commits; see database.forgets.
	forgets bool
	// flips says that a batch cannot be read, which becomes a dead letter.
	flips bool
	// needs is what the machine must have: "" (nothing), needsDisk or needsClock.
	needs string
	// step is how far it sets the clock of the database off.
	step time.Duration
	// play begins the fault, calls w.hold(e), and undoes it. An error means that the fault could
	// not be played or undone, and is a fault of the run itself.
	play func(w *world, e event) error
}

const (
	needsDisk  = "a tmpfs of its own"
	needsPower = "POWER=1, as root"
	needsClock = "libfaketime"
)

// What faults disturb.
const (
	onBrokers  = "brokers"
	onNetwork  = "network to Kafka"
	onTopics   = "topics"
	onDatabase = "database"
	onLink     = "network to the database"
	onRedis    = "Redis"
	onConfig   = "topics.yaml"
	onOrders   = "orders"
	onPower    = "power"
)

// kinds returns all kinds that the machine can play, in a fixed order, and the names of those that
// it cannot. Without losses, no kind deletes records. With power, they are those of powerKinds only.
func kinds(v variant, losses bool, has func(need string) bool) (all []kind, missing []string) {
	if v.power {
		return powerKinds(v), nil
	}
	for _, k := range slices.Concat(processKinds, brokerKinds, topicKinds, databaseKinds, redisKinds, networkKinds, otherKinds) {
		switch {
		case k.needs != "" && !has(k.needs):
			missing = append(missing, k.name)
		case losses || !k.loses:
			all = append(all, k)
		}
	}
	return all, missing
}
