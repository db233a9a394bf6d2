package shadow

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/room"
)

// Role decides what closes would do, and closes nothing: a shadow run beside the job that closes the orders today. It
// reads the orders in the database, and needs neither the tables of App.CreateTables nor the right to write. It creates its topic,
// which no other role uses.
const Role = "shadow"

// settings is the section shadow of topics.yaml. Without keys, it says that the pipeline has a shadow run.
var settings = config.Section[struct{}]{
	Key: "shadow", Fields: func(*struct{}) config.Fields {
		return config.Fields{"topic": config.Dropped("leave it out: the topic is shadow, with topics.prefix before it")}
	},
}

// topic returns the name of the topic that receives the verdicts.
func topic(c *config.Config) string { return c.Topics.Prefix + "shadow" }

// retention is for a shadow run of a week, and another week.
const retention = 14 * 24 * time.Hour

// Room returns the room of shadow runs, with Role.
func Room() room.Room {
	return room.Room{Name: "shadow", Settings: settings, Topics: topics, Commands: commands(), Checks: []room.Check{check}, Roles: []room.Role{{
		Name: Role,
		Help: `shadow closes nothing: it says what closes would do, for orderclose shadow report. Run it
with relay beside the job that closes the orders today, as docs/mapping.md says.
`,
		Kafka: true, Database: true,
		Excludes: []string{"closer", "compensator", "sweeper"}, Why: "runs beside another program that closes the orders",
		New: newRunner,
	}}}
}

// checkName is the name of the check of a shadow run.
const checkName = "shadow run"

// beside is the kind of a finding that nobody sees: a shadow run reads the close topic, and another job closes the orders. Then
// the database need not have the tables of orderclose, and the process closes no order that is due.
const beside ops.ProblemKind = "shadow_run"

// check makes the verdict one on a pipeline in which another job closes the orders.
var check = room.Check{
	Name: checkName, ReadsCloses: group, Judge: judge,
	Finds: []ops.Kind{{Name: beside, Hides: []ops.ProblemKind{ops.SchemaDiffers, "schema", "late payments", ops.PausesUnknown, "pauses"}}},
}

func judge(f *ops.Findings) {
	if !slices.ContainsFunc(ops.AskStatus.Of(f.Facts).Value.Topics, func(t ops.TopicStatus) bool { return t.ReadBy == checkName }) {
		return
	}
	if late := f.Found(ops.OrdersOverdue); late != nil {
		late.Severity = ops.Today //mutant:shadow-late-urgent
		late.Detail = ops.AskOverdue.Of(f.Facts).Value.String() +
			"; a shadow run reads the close topic and closes nothing: they are late by the job that closes the orders today"
	}
	f.Add(beside, 0, "")
}

func group(c *config.Config) string { return c.Group(Role, c.Topics.Close) }

// topics returns the topic of the verdicts.
func topics(c *config.Config) []room.TopicSpec {
	return []room.TopicSpec{{
		Name: topic(c), Group: group(c), Partitions: c.Partitions, Replication: c.Replication, Sync: c.Synced(), Retention: retention, BrokerTime: true,
	}}
}

// errElsewhere is the error of a shadow run of orders that are not closed in the database.
var errElsewhere = errors.New("a shadow run reads the orders in the database: it works without closer.http.url and without Options.Store")

func newRunner(h room.Host) (room.Runner, error) {
	if h.OwnStore {
		return room.Runner{}, errElsewhere
	}
	c := h.Config
	s, err := New(Options{
		Log:        h.Log,
		Store:      h.Store,
		Group:      group(c),
		CloseTopic: c.Topics.Close,
		Topic:      topic(c),
		OnHang:     h.OnHang,
		Logger:     h.Logger.With("stage", Stage),
		Registerer: h.Registerer,
	})
	if err != nil {
		return room.Runner{}, err
	}
	return room.Runner{Needs: []room.Need{h.NeedTopic(c.Topics.Close), needTopic(h), needTables(h)}, Run: s.Run}, nil
}

// needTopic creates the topic of the verdicts if it does not exist. Without the section shadow in topics.yaml, topics apply does not
// create it: it would be a difference in each cluster without a shadow run.
func needTopic(h room.Host) room.Need {
	specs := topics(h.Config)
	return room.Need{Name: "topic " + specs[0].Name, Check: func(ctx context.Context) error {
		there, err := h.Kafka.Exists(ctx, specs[0].Name)
		if err == nil && !there {
			_, _, err = h.Kafka.Apply(ctx, specs)
		}
		return err
	}}
}

// needTables waits until the database answers, and its tables of orders fit the mapping.
func needTables(h room.Host) room.Need {
	return room.Need{Name: "database", Check: func(ctx context.Context) error {
		if err := h.Store.Ping(ctx); err != nil {
			return err
		}
		return h.Store.CheckTables(ctx)
	}}
}
