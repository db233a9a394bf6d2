package pipeline

import (
	"context"
	"errors"

	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/shadow"
)

// Shadow is the role that decides what closes would do, and closes nothing: a shadow run beside the
// job that closes the orders today. It reads the orders in the database, and needs neither the
// tables of CreateTables nor the right to write. It creates its topic, which no other role uses.
const Shadow Role = "shadow"

// errNoShadow is the error of a shadow run of orders that are not closed in the database.
var errNoShadow = errors.New("a shadow run reads the orders in the database: it works with closer.kind sql, and without Options.Store")

func (a *App) buildShadow() (part, error) {
	if !a.closesInDatabase() {
		return part{}, errNoShadow
	}
	c := a.o.Config
	s, err := shadow.New(shadow.Options{
		Log:        topicWaiter{a.conns.Kafka, a},
		Store:      a.conns.Store,
		Group:      c.ShadowGroup(),
		CloseTopic: c.Topics.Close,
		Topic:      c.Topics.Shadow,
		OnHang:     a.o.OnHang,
		Logger:     a.o.Logger.With("stage", shadow.Stage),
		Registerer: a.o.Registerer,
	})
	return part{Shadow, []need{a.needKafka(), a.needTopic(c.Topics.Close), a.needShadowTopic(), a.needReadable()}, s.Run}, err
}

// needShadowTopic creates the topic of a shadow run if it does not exist. The topic is not among
// those of topics apply: it would be a difference in each cluster without a shadow run.
func (a *App) needShadowTopic() need {
	spec := ops.ShadowSpec(a.o.Config)
	return need{"topic " + spec.Name, func(ctx context.Context) error {
		there, err := a.conns.Kafka.Exists(ctx, spec.Name)
		if err == nil && !there {
			_, _, err = a.conns.Kafka.Apply(ctx, []kafka.TopicSpec{spec})
		}
		return err
	}}
}

// needReadable is needDatabase for a role that only reads the orders: the database answers, and the
// orders' tables fit the mapping.
func (a *App) needReadable() need {
	return need{"database", func(ctx context.Context) error {
		if err := a.conns.Store.Ping(ctx); err != nil {
			return err
		}
		return a.conns.Store.CheckTables(ctx)
	}}
}
