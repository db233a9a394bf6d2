package pipeline

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/orderclose/orderclose/internal/control"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/wire"
)

const (
	// announceTimeout bounds one append. A process that stops waits for the last one.
	announceTimeout = 2 * time.Second
	// announceLook is the time between two looks at what fails, which is in memory.
	announceLook = 2 * time.Second
	// announceEvery is the time between two records of a relay or closer, which is a member of a group, and
	// announceAlone that of any other process.
	announceEvery, announceAlone = time.Hour, time.Minute
	// lowestLimitIsNews is for how long the limit of a closer has been at its minimum when it is announced. A
	// backlog after a fault begins at the minimum, and leaves it after a few transactions.
	lowestLimitIsNews = 30 * time.Second
)

// announce tells the control topic which process this is, until ctx ends: at the start, each hour or minute, when
// what fails in a compensator or closer has changed, and that somebody has stopped it. So console and status know
// which processes there should be, and since when a server fails.
func (a *App) announce(ctx context.Context, roles []Role) {
	p, every := control.Announcement{Name: a.o.ProcessName(roles), Database: a.database()}, announceEvery
	if a.o.Instance != "" {
		p.Instance, p.At = a.o.Instance, hostAndPID()
	}
	if !slices.ContainsFunc(roles, func(r Role) bool { return r == Relay || r == Closer }) {
		p.EverySeconds, every = int(announceAlone.Seconds()), announceAlone
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		p.Version = info.Main.Version
	}
	var last time.Time // when it was announced; zero: never, or the last append failed
	failing := false
	for pause := retry.NewBackOff(); ctx.Err() == nil; {
		wait := every
		if slices.ContainsFunc(roles, func(r Role) bool { return r == Compensator || r == Closer }) {
			wait = announceLook
		}
		if a.setFailing(&p) || time.Since(last) >= every {
			if err := a.appendProcess(ctx, p); err == nil {
				last, failing = time.Now(), false
				pause.Reset()
			} else {
				if !failing && ctx.Err() == nil {
					a.o.Logger.Info("announcing this process failed, will retry: status and console may not list it", "topic", a.o.Config.Topics.Control, "err", err)
				}
				last, failing, wait = time.Time{}, true, pause.NextBackOff()
			}
		}
		retry.Sleep(ctx, wait)
	}
	if p.Ended = !a.failed.Load(); !p.Ended {
		return // console and status show that it is gone
	}
	if err := a.appendProcess(context.WithoutCancel(ctx), p); err != nil {
		a.o.Logger.Info("the end of this process is not recorded: status and console show it as gone for up to a day", "topic", a.o.Config.Topics.Control, "err", err)
	}
}

// setFailing sets what fails now in a closer or compensator, and reports whether that is news.
func (a *App) setFailing(p *control.Announcement) bool {
	now := map[string]int64{}
	if at, is := a.ready.waiting.since(writesReason); is {
		now[control.FailingWrites] = at.UnixMilli()
	}
	if at, is := a.ready.hints.since(lockReason); is {
		now[control.FailingLock] = at.UnixMilli()
	}
	if a.lowestLimitSince != nil {
		if at := a.lowestLimitSince(); !at.IsZero() && time.Since(at) >= lowestLimitIsNews {
			now[control.FailingLimit] = at.UnixMilli()
		}
	}
	if a.provider != nil {
		if at, _ := a.provider.Failing(); !at.IsZero() && time.Since(at) >= failingFor {
			now[control.FailingPayment] = at.UnixMilli()
		}
	}
	if maps.Equal(p.FailingSince, now) {
		return false
	}
	p.FailingSince = now
	return true
}

func (a *App) appendProcess(ctx context.Context, p control.Announcement) error {
	m, err := p.Encode()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, announceTimeout)
	defer cancel()
	_, err = a.conns.Kafka.Append(ctx, a.o.Config.Topics.Control, 0, []wire.Message{m})
	return err
}

// ErrFenced is wrapped by the error of Run and of eventreader.Read if another process with the same
// Options.Instance has joined a group of this one. The program must end, and not be started again until
// each process has an instance of its own.
var ErrFenced = kafka.ErrFenced

// ProcessName returns the name of a process with these roles, and its client id in consumer groups: role@host:pid:port, with
// several roles closer+relay@host:pid:port. The port is that of Options.Listen, if it is set. With an instance,
// the name is role@instance:port: brokers show the client id of the first process with the instance.
func (o *Options) ProcessName(roles []Role) string {
	name := strings.Trim(strings.ReplaceAll(fmt.Sprint(slices.Sorted(slices.Values(roles))), " ", "+"), "[]") + "@" + cmp.Or(o.Instance, hostAndPID())
	if _, port, err := net.SplitHostPort(o.Listen); err == nil {
		name += ":" + port
	}
	return name
}

// hostAndPID returns the host and the id of this process, as host:pid.
func hostAndPID() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s:%d", host, os.Getpid())
}

// logFenced logs which other process has the instance of this one, as far as the control topic names it.
func (a *App) logFenced(ctx context.Context, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), announceTimeout)
	defer cancel()
	own, other := hostAndPID(), "unknown"
	state, _ := control.New(a.conns.Kafka, a.o.Config.Topics.Control).Read(ctx, time.Now()) // without an answer it is unknown
	for _, p := range state.Processes {
		if p.Instance == a.o.Instance && p.At != own && !p.Ended {
			other = p.Name + " at " + p.At
		}
	}
	a.o.Logger.Error("another process has the same instance, so this one ends: give each process an instance of its own",
		"instance", a.o.Instance, "at", own, "other_process", other, "err", err)
}
