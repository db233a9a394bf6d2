package pipeline

import (
	"context"
	"runtime/debug"
	"slices"
	"time"

	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/wire"
)

// announceTimeout bounds one append. A process that stops waits for the last one.
const announceTimeout = 2 * time.Second

// announce tells the control topic which process this is: at the start, each ops.AnnounceEvery, and that
// somebody has stopped it. So console and status know which processes there should be. It does so for the roles
// that are members of a group and may write to the control topic.
func (a *App) announce(ctx context.Context, roles []Role) {
	if a.conns.Kafka == nil || !slices.Contains(roles, Relay) && !slices.Contains(roles, Closer) && !slices.Contains(roles, Compensator) {
		return
	}
	p := wire.Process{Name: processName(roles, a.o.Listen)}
	if info, ok := debug.ReadBuildInfo(); ok {
		p.Version = info.Main.Version
	}
	for pause := retry.NewBackOff(); ctx.Err() == nil; {
		wait := ops.AnnounceEvery
		if err := a.appendProcess(ctx, p); err == nil {
			pause.Reset()
		} else {
			a.o.Logger.Debug("announcing this process failed, will retry", "topic", a.o.Config.Topics.Control, "err", err)
			wait = pause.NextBackOff()
		}
		retry.Sleep(ctx, wait)
	}
	if p.Ended = !a.failed.Load(); !p.Ended {
		return // console and status show that it is gone
	}
	if err := a.appendProcess(context.WithoutCancel(ctx), p); err != nil {
		a.o.Logger.Info("the end of this process is not recorded: it is shown as gone for some time", "topic", a.o.Config.Topics.Control, "err", err)
	}
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
