//go:build linux

// Command chaosreal runs the whole pipeline on real servers while faults disturb them, and judges
// what came of it. make chaos-real runs it; docs/reliability.md describes it.
//
// It starts three brokers, MariaDB, MySQL or PostgreSQL, and Redis, and two processes of each stage, all of the production binary. A shop creates, pays,
// cancels and moves more than a hundred orders a second. A schedule, drawn from a seed, plays faults meanwhile. Afterwards everything must be done
// within five minutes, and package judge reads Kafka and the database.
//
// A long run is divided into rounds of ten minutes. Each round has topics, a database and a judgement of its own, so memory and disks do not fill up.
// Every second round deletes no records: then a record that disappeared is a violation.
//
//	main.go       the settings, the rounds
//	schedule.go   draws the faults of a round
//	kinds.go      what a kind of fault is, and all kinds
//	kinds_brokers.go, kinds_topics.go, kinds_database.go, kinds_process.go, kinds_other.go    the kinds
//	kinds_power.go    cuts of power, the only kinds with POWER=1
//	kinds_burst.go    cuts of power while a burst is closed
//	kinds_flip.go     bits that flip in a log, beside cuts of power
//	kafka.go      requests to Kafka that the faults need
//	database.go   what differs between the databases
//	cluster.go    brokers, database, Redis, and the proxies in front of them
//	variant.go    mapped tables, TLS with SASL, two versions
//	world.go      a round: its topics, its processes, plays the faults
//	round.go      waits until all is done, and judges
//	shop.go       creates, pays, cancels and moves orders
//	lines.go      removes lines of orders while closes read them
//	summary.go    the figures and the verdict
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// settings are those of the environment.
type settings struct {
	dir, binary string        // folder of the servers, and orderclose
	logs        string        // LOGS: folder for the logs of a round that broke a promise
	minutes     float64       // MINUTES: how long orders are created
	seed        uint64        // SEED
	database    *database     // DATABASE
	variant     variant       // MAPPED, SECURED, and the other program
	perMinute   float64       // FAULTS: how many faults a minute
	losses      bool          // LOSSES=0: no round deletes records
	only        []string      // KINDS: only these kinds
	round       time.Duration // the longest round
}

// defaultPerMinute is the default of FAULTS: 75 faults in ten minutes.
const defaultPerMinute = 8

// powerPerMinute is that of cuts of power: the time after a cut is judged for a minute and more.
const powerPerMinute = 0.5

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	s, err := readSettings(os.Args[1:], os.Getenv)
	if err == nil {
		err = run(ctx, s)
	}
	if err != nil {
		note("%v", err)
		os.Exit(1)
	}
}

// readSettings reads the arguments and the environment.
func readSettings(args []string, env func(string) string) (s settings, err error) {
	if len(args) < 3 || len(args) > 4 {
		return s, fmt.Errorf("usage: chaosreal DIR ORDERCLOSE LOGS [OTHER-ORDERCLOSE], as deploy/native/chaos-real.sh does")
	}
	s = settings{dir: args[0], binary: args[1], logs: args[2], minutes: 10, seed: 1, perMinute: defaultPerMinute,
		losses: env("LOSSES") != "0", round: 10 * time.Minute}
	s.variant = variant{mapped: env("MAPPED") == "1", secured: env("SECURED") == "1", power: env("POWER") == "1", brokers: 3, sync: env("SYNC")}
	if s.variant.power {
		s.perMinute = powerPerMinute
	}
	if len(args) == 4 {
		s.variant.other = args[3]
	}
	number := func(name string, value *float64, least float64) {
		if text := env(name); text != "" && err == nil {
			if *value, err = strconv.ParseFloat(text, 64); err != nil || *value < least {
				err = fmt.Errorf("%s=%q: write a number of at least %v", name, text, least)
			}
		}
	}
	number("MINUTES", &s.minutes, 1)
	number("FAULTS", &s.perMinute, 0.1)
	switch brokers := env("BROKERS"); brokers {
	case "", "3":
	case "1":
		if s.variant.brokers = 1; !s.variant.power {
			err = cmp.Or(err, errors.New("BROKERS=1: only with POWER=1; the other faults need three brokers"))
		}
	default:
		err = cmp.Or(err, fmt.Errorf("BROKERS=%q: write 1 or 3", brokers))
	}
	if text := env("SEED"); text != "" && err == nil {
		if s.seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			err = fmt.Errorf("SEED=%q: write a whole number", text)
		}
	}
	if err == nil {
		s.database, err = databaseNamed(env("DATABASE"))
	}
	if text := env("KINDS"); text != "" {
		s.only = strings.Split(text, ",")
	}
	return s, err
}

// run plays all rounds and prints the summary. The error says that a promise was broken, or that the run could not be made.
func run(ctx context.Context, s settings) error {
	c, err := startCluster(ctx, s.dir, s.database, s.variant)
	if c != nil {
		defer c.stop()
	}
	if err != nil {
		return err
	}
	has := func(need string) bool { return need == needsDisk && c.disks || need == needsClock && c.clock != "" }
	var rounds []*round
	_, missing := kinds(s.variant, true, has)
	over := time.Duration(s.minutes * float64(time.Minute))
	for n := 0; over > 0; n++ {
		length := min(over, s.round)
		over -= length
		all, _ := kinds(s.variant, s.losses && n%2 == 0, has)
		if len(s.only) > 0 {
			all = slices.DeleteFunc(all, func(k kind) bool { return !slices.Contains(s.only, k.name) })
		}
		r, err := oneRound(ctx, c, s, n, length, all)
		if err != nil {
			return err
		}
		rounds = append(rounds, r)
		if len(r.verdict.Violations) > 0 {
			break // the logs of the processes are of this round
		}
	}
	sum := summarize(s, rounds, missing)
	sum.print()
	return sum.err()
}

// oneRound plays the n-th round. It keeps the logs of a round that broke a promise.
func oneRound(ctx context.Context, c *cluster, s settings, n int, length time.Duration, all []kind) (*round, error) {
	seed := s.seed + uint64(n)<<32
	schedule := drawSchedule(seed, all, length, s.perMinute)
	note("round %d: %d faults in %v, seed %d", n+1, len(schedule), length, s.seed)
	prefix := fmt.Sprintf("chaos_%d_%d_", s.seed, n)
	w, err := newWorld(ctx, c, s.binary, filepath.Join(s.dir, fmt.Sprint("round-", n)), prefix)
	if w != nil {
		defer w.close()
	}
	if err != nil {
		return nil, err
	}
	r, err := playRound(ctx, w, seed, length, schedule, all)
	if err != nil || len(r.verdict.Violations) > 0 {
		if out, failed := exec.Command("cp", "-r", w.dir, s.logs).CombinedOutput(); failed != nil {
			note("logs not kept: %v: %s", failed, out)
		} else {
			note("logs: %s", s.logs)
		}
	}
	return r, err
}

// note prints a line for people.
func note(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
