package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/wire"
	"github.com/orderclose/orderclose/room"
)

// DefaultSweepEvery is the default of Options.SweepEvery.
const DefaultSweepEvery = 5 * time.Second

const (
	// keepOutbox is how long a sweeper keeps rows of the outboxes, which nobody publishes: as long as the topic of the
	// events keeps an event. A program of the shop may read and delete them earlier.
	keepOutbox = 7 * 24 * time.Hour
	// dropInterval is the interval between two searches for older rows.
	dropInterval = time.Minute
)

// sweepAlone returns the roles with a compensator in place of a sweeper.
func (a *App) sweepAlone(roles []Role) ([]Role, error) {
	i := slices.Index(roles, Sweeper)
	if i < 0 {
		return roles, nil
	}
	if slices.ContainsFunc(roles, func(r Role) bool {
		of, _ := a.role(r)
		return r != Sweeper && r != Console && (of.New == nil || of.Kafka)
	}) {
		return nil, errors.New("the role sweeper closes all orders by itself: run no other role beside it but console, and those of rooms that need no Kafka")
	}
	if a.conns.Kafka != nil {
		return nil, errors.New("the role sweeper does not use Kafka: name no brokers, or run the roles of the pipeline")
	}
	if a.o.SweepEvery != 0 && a.o.SweepEvery < time.Second {
		return nil, fmt.Errorf("Options.SweepEvery is %v: want 1s or more", a.o.SweepEvery)
	}
	a.alone = true
	roles = slices.Clone(roles)
	roles[i] = Compensator
	return roles, nil
}

// dropOutbox deletes, beside a sweeper, the rows of the outboxes that are older than keepOutbox, until ctx ends.
func (a *App) dropOutbox(ctx context.Context) {
	if a.conns.Store == nil {
		return
	}
	boxes := []wire.Outbox{wire.ScheduleOutbox}
	if room.TakerOfEvents(a.o.Rooms, a.o.Config) == "" { //mutant:unsent-events-dropped
		boxes = append(boxes, wire.EventOutbox)
	}
	for retry.Sleep(ctx, dropInterval) {
		for _, box := range boxes {
			dropped, err := a.conns.Store.DropOutbox(ctx, box, keepOutbox)
			if err != nil && ctx.Err() == nil {
				a.o.Logger.Warn("old rows of an outbox cannot be deleted, will retry", "outbox", box, "err", err)
			}
			if dropped > 0 {
				a.o.Logger.Info("deleted rows of an outbox that nobody has read", "outbox", box, "rows", dropped, "older_than", keepOutbox)
			}
		}
	}
}
