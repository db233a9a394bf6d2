package pipeline

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"time"

	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/wire"
)

const (
	// announceTimeout bounds one append. A process that stops waits for the last one.
	announceTimeout = 2 * time.Second
	// announceLook is the time between two looks at the delays in effect, which are in memory.
	announceLook = 2 * time.Second
	// announceEvery is the time between two records of a relay or closer, which is a member of a group, and
	// announceAlone that of any other process.
	announceEvery, announceAlone = time.Hour, time.Minute
)

// announce tells the control topic which process this is, until ctx ends: at the start, each hour or minute, when the
// delays of a compensator have changed, and that somebody has stopped it. So console and status know which
// processes there should be, and with which delays orders are made.
func (a *App) announce(ctx context.Context, roles []Role) {
	p, every := wire.Process{Name: a.o.processName(roles), Database: a.database()}, announceEvery
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
		if slices.Contains(roles, Compensator) {
			wait = announceLook
		}
		if a.setDelays(&p, roles) || time.Since(last) >= every {
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

// setDelays sets the delays in effect, if the process runs a compensator, and reports whether they differ.
func (a *App) setDelays(p *wire.Process, roles []Role) bool {
	d := a.config().Delays
	now := map[string]int64{"": d.Default.Milliseconds()}
	for category, delay := range d.ByCategory {
		now[category] = delay.Milliseconds()
	}
	if !slices.Contains(roles, Compensator) || maps.Equal(p.Delays, now) {
		return false
	}
	p.Delays, p.File = now, ""
	if data, err := os.ReadFile(a.o.TopicsFile); err == nil {
		p.File = fmt.Sprintf("%x", sha256.Sum256(data))[:10]
	}
	return true
}

func (a *App) appendProcess(ctx context.Context, p wire.Process) error {
	m, err := p.Encode()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, announceTimeout)
	defer cancel()
	_, err = a.conns.Kafka.Append(ctx, a.o.Config.Topics.Control, 0, []wire.Message{m})
	return err
}
