package intake

import (
	"cmp"
	"errors"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/room"
)

// Role schedules orders from the change records of their table, which a connector such as Debezium writes to a topic of
// the shop (topics.yaml: intake). It needs Kafka only.
const Role = "intake"

// Room returns the room of the intake, with Role.
func Room() room.Room {
	return room.Room{Name: "intake", Roles: []room.Role{{
		Name: Role,
		Help: `intake schedules orders from the change records of their table, as docs/intake.md says.
`,
		Kafka: true, Buckets: true,
		New: newRunner,
	}}}
}

func newRunner(h room.Host) (room.Runner, error) {
	c := h.Config
	if c.Intake.Topic == "" {
		return room.Runner{}, errors.New("topics.yaml does not say where the change records are: write intake: {topic: shop.orders, format: debezium}")
	}
	zone, err := mapping.ParseZone(cmp.Or(c.Intake.Zone, "UTC"))
	if err != nil {
		return room.Runner{}, err
	}
	i, err := New(Options{
		Log:             h.Log,
		Group:           c.IntakeGroup(),
		Topic:           c.Intake.Topic,
		Format:          Format(c.Intake.Format),
		Zone:            zone,
		Orders:          cmp.Or(c.Orders, mapping.Reference()),
		Current:         h.Buckets,
		Delays:          func() orderclose.Delays { return h.Live().Delays },
		CloseTopic:      c.Topics.Close,
		DeadLetterTopic: c.Topics.DeadLetter,
		LeaveOverdue:    max(2*c.Compensator.Period, DefaultLeaveOverdue),
		Now:             h.Now,
		OnHang:          h.OnHang,
		Logger:          h.Logger.With("stage", Stage),
		Registerer:      h.Registerer,
	})
	if err != nil {
		return room.Runner{}, err
	}
	return room.Runner{Needs: []room.Need{h.NeedTopic(c.Intake.Topic)}, Run: i.Run}, nil
}
