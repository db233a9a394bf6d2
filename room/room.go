// Package room has the type of a room: a part of orderclose that a program can leave out.
//
// The core schedules, delays, closes and sweeps: packages producer, delayrelay, closer, compensator, outbox and
// pipeline. Everything else is a room: a folder below rooms, and one entry in the list that rooms.All returns. A room
// imports the core, and never another room. A program of its own passes the rooms that it chooses as
// pipeline.Options.Rooms; without them it links none.
//
// To delete a room, delete its folder, its entry, and the tests room_NAME_test.go that play it in other folders. This module compiles without
// them: make without ROOM=name. docs/architecture.md says what else names a room, and programs in modules of their own, such as
// examples/embed, may import it.
package room

import (
	"context"
	"io/fs"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/health"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/partition"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/migrations"
)

// Room is a part of orderclose. A package below rooms exports one.
type Room struct {
	Name     string  // of its folder
	Settings Section // its key of topics.yaml, which has its name; nil: it has none
	Roles    []Role
	// Tables has the tables of the room, which orderclose migrate creates if topics.yaml has the key of the room: steps in files
	// DIALECT/NN.sql, with mysql, postgres and sqlite as DIALECT, and NN from 01 on. A step is never changed; the next one changes
	// tables. Programs of the last release still work with it. Each statement but the last can be repeated, because MySQL commits
	// each by itself. nil: there are none.
	Tables fs.FS
	Checks []Check // of status, doctor and console, beside those of the core
	// Variables are the environment variables that the room reads, into Servers.Others. NAME_FILE names a file with the value of NAME.
	Variables []string
	// TakesEvents reports whether the room takes the rows of outbox_events. If it does, the role outbox publishes schedules alone,
	// and a sweeper does not delete old rows of outbox_events. nil: the room does not take them.
	TakesEvents func(*config.Config) bool
}

// Check is a question about the pipeline, and what its answer means.
type Check = health.Check

// Role is a part of the pipeline that a process can run, by its name: orderclose run NAME, or App.Run.
type Role struct {
	Name string
	Help string // for orderclose run: some lines that end with a line break
	// Kafka and Database say that the role cannot work without them. It runs only if the process has their clients.
	Kafka, Database bool
	// Buckets says that the role puts records into buckets. It starts when it is known which delay topics exist.
	Buckets bool
	// Variables returns the environment variables that the role requires, besides those of Kafka and the database; nil: none.
	Variables func(*config.Config) []string
	// New returns what runs. It does not wait for servers. An error says which setting is missing or wrong.
	New func(Host) (Runner, error)
}

// Runner is a role that is ready to run.
type Runner struct {
	Needs []Need // a role that needs Kafka waits for the brokers before
	// Run runs until ctx ends, and then returns nil. It returns an error only if it can never work.
	Run func(ctx context.Context) error
}

// Need is what a role waits for before it runs. Check returns nil when it is there. It is repeated until then, and
// /-/ready shows Name and its error.
type Need struct {
	Name  string
	Check func(ctx context.Context) error
}

// Cluster is a client of Kafka, and Store is the database with its tables of orders. Rooms of other modules can call
// their methods. A Section is a key of topics.yaml, and TableSteps are the tables of a room.
type (
	Cluster    = kafka.Cluster
	Store      = store.Store
	Section    = config.AnySection
	TableSteps = migrations.Tables
)

// Host is what a process gives to its rooms.
type Host struct {
	Config    *config.Config            // at the start
	Live      func() *config.Config     // in effect now
	Buckets   func() orderclose.Buckets // that records are put into now
	Servers   environ.Servers           // what the environment names
	Services  http.RoundTripper         // the transport to services; nil: the network
	Kafka     *Cluster                  // nil: the process has none
	Log       partition.Log             // of Kafka; consumers of a topic that does not exist wait for it
	NeedTopic func(topic string) Need   // of a topic without which a role cannot start
	Store     *Store                    // nil: the process has no database

	Now        func() time.Time // the clock of this machine; nil: time.Now
	OnHang     func(why string)
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Names returns the names of roles.
func Names(roles []Role) (names []string) {
	for _, r := range roles {
		names = append(names, r.Name)
	}
	return names
}

// Variables returns the environment variables of rooms.
func Variables(rooms []Room) (all []string) {
	for _, r := range rooms {
		all = append(all, r.Variables...)
	}
	return all
}

// TakerOfEvents returns the name of the room that takes the rows of outbox_events; "": none does.
func TakerOfEvents(rooms []Room, c *config.Config) string {
	for _, r := range rooms {
		if r.TakesEvents != nil && r.TakesEvents(c) {
			return r.Name
		}
	}
	return ""
}

// Checks returns the checks of rooms.
func Checks(rooms []Room) (all []Check) {
	for _, r := range rooms {
		all = append(all, r.Checks...)
	}
	return all
}
