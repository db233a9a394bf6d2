package pipeline

import (
	"cmp"
	"errors"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/intake"
	"github.com/orderclose/orderclose/internal/store/mapping"
)

// Intake is the role that schedules orders from the change records of their table, which a connector such as
// Debezium writes to a topic of the shop (topics.yaml: intake). It needs Kafka only.
const Intake Role = "intake"

func (a *App) buildIntake() (part, error) {
	c := a.o.Config
	if c.Intake.Topic == "" {
		return part{}, errors.New("topics.yaml does not say where the change records are: write intake: {topic: shop.orders, format: debezium}")
	}
	zone, err := mapping.ParseZone(cmp.Or(c.Intake.Zone, "UTC"))
	if err != nil {
		return part{}, err
	}
	i, err := intake.New(intake.Options{
		Log:             topicWaiter{a.conns.Kafka, a},
		Group:           c.IntakeGroup(),
		Topic:           c.Intake.Topic,
		Format:          intake.Format(c.Intake.Format),
		Zone:            zone,
		Orders:          cmp.Or(c.Orders, mapping.Reference()),
		Current:         a.ActiveBuckets,
		Delays:          func() orderclose.Delays { return a.config().Delays },
		CloseTopic:      c.Topics.Close,
		DeadLetterTopic: c.Topics.DeadLetter,
		LeaveOverdue:    max(2*c.Compensator.Period, intake.DefaultLeaveOverdue),
		Now:             a.o.Now,
		OnHang:          a.o.OnHang,
		Logger:          a.o.Logger.With("stage", intake.Stage),
		Registerer:      a.o.Registerer,
	})
	return part{Intake, []need{a.needKafka(), a.needTopic(c.Intake.Topic)}, i.Run}, err
}
