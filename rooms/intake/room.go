package intake

import (
	"cmp"
	"errors"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/room"
)

// Role schedules orders from the change records of their table, which a connector such as Debezium writes to a topic of
// the shop (topics.yaml: intake). It needs Kafka only.
const Role = "intake"

// Settings is the section intake of topics.yaml.
type Settings struct {
	Topic  string `yaml:"topic"` // of the shop: topics.prefix is not put before it; "": there is none
	Format Format `yaml:"format" enum:"debezium canal maxwell"`
	Zone   string `yaml:"zone" is:"zone"` // of a TIMESTAMP that a record has as text without a zone; default: UTC
}

const example = "intake: {topic: shop.orders, format: debezium}"

var settings = config.Section[Settings]{
	Key: "intake", Example: example, Topic: "topic",
	Check: func(s Settings) (wrong, do string) {
		if s != (Settings{}) && (s.Topic == "" || s.Format == "") {
			return "topic or format is missing", "write " + example
		}
		return "", ""
	},
}

// Room returns the room of the intake, with Role.
func Room() room.Room {
	return room.Room{Name: "intake", Settings: settings, Roles: []room.Role{{
		Name: Role,
		Help: `intake schedules orders from the change records of their table, as docs/intake.md says.
`,
		Kafka: true, Buckets: true,
		New: newRunner,
	}}}
}

func input(c *config.Config) (topic, group string) {
	topic = settings.Of(c).Topic
	return topic, c.Group(Role, topic)
}

func newRunner(h room.Host) (room.Runner, error) {
	c, own := h.Config, settings.Of(h.Config)
	topic, group := input(c)
	if topic == "" {
		return room.Runner{}, errors.New("topics.yaml does not say where the change records are: write " + example)
	}
	zone, err := mapping.ParseZone(cmp.Or(own.Zone, "UTC"))
	if err != nil {
		return room.Runner{}, err
	}
	i, err := New(Options{
		Log:             h.Log,
		Group:           group,
		Topic:           topic,
		Format:          own.Format,
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
	return room.Runner{Needs: []room.Need{h.NeedTopic(topic)}, Run: i.Run}, nil
}
