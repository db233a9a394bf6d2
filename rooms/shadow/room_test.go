package shadow

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/pipeline"
	"github.com/orderclose/orderclose/room"
)

// ownStore closes orders elsewhere.
type ownStore struct{}

func (ownStore) CloseOrders(context.Context, orderclose.Path, []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	return nil, nil
}

func TestRoom_NamesWhatIsMissing(t *testing.T) {
	servers := pipeline.Servers{Brokers: []string{"127.0.0.1:1"}, DSN: "u@tcp(h)/d"}
	for _, c := range []struct {
		o     pipeline.Options
		roles []pipeline.Role
		want  string
	}{
		{pipeline.Options{}, []pipeline.Role{Role}, "Servers.Brokers"},
		{pipeline.Options{Servers: pipeline.Servers{Brokers: servers.Brokers}}, []pipeline.Role{Role}, "Servers.DSN"},
		{pipeline.Options{Servers: servers, Store: ownStore{}}, []pipeline.Role{Role}, "without Options.Store"},
		{pipeline.Options{Servers: servers}, []pipeline.Role{pipeline.Closer, Role},
			"shadow runs beside another program that closes the orders: run it without closer and compensator"},
	} {
		c.o.Config, c.o.Rooms = config.Default(), []room.Room{Room()}
		app := must.Get(pipeline.New(c.o))(t)
		err := app.Run(t.Context(), c.roles...)
		app.Close()
		expect.Says(t, err, c.want, "%+v", c)
	}
}

// answers are those of a pipeline whose close topic a shadow run reads, or closers, with more answers.
func answers(by string, more map[string]ops.Answer[any]) ops.Facts {
	f := ops.Facts{Now: time.Now(), Checks: append(ops.Checks(), Room().Checks...), Answers: more}
	f.Answers[string(ops.AskStatus)] = ops.Answer[any]{At: f.Now, Value: ops.Status{At: f.Now, Topics: []ops.TopicStatus{{ReadBy: by}}}}
	return f
}

func TestCheck_LateOrdersAreThoseOfTheOtherJob(t *testing.T) {
	now := time.Now()
	overdue := ops.OverdueOrders{At: now, Orders: 11, Oldest: now.Add(-6 * time.Second)}
	for by, want := range map[string]ops.State{checkName: ops.LookToday, "": ops.ActNow} {
		v := ops.Judge(answers(by, map[string]ops.Answer[any]{string(ops.AskOverdue): {At: now, Value: overdue}}))
		expect.That(t, v.State == want && len(v.Problems) == 1 && v.Problems[0].Runbook == "orders-are-overdue-in-the-database", "%+v, want %s", v, want)
		expect.Equal(t, strings.Contains(v.Problems[0].Detail, "late by the job that closes the orders today"), by != "", "%s blames the job", v.Problems[0].Detail)
	}
}

// The database of a shadow run has only the shop's tables.
func TestCheck_NeedsNoTablesOfOrderclose(t *testing.T) {
	none := errors.New("no such table")
	for by, want := range map[string]int{checkName: 0, "": 2} {
		for _, schema := range []error{none, &store.SchemaError{Schema: store.Schema{Has: 13, Wants: 19}}} {
			v := ops.Judge(answers(by, map[string]ops.Answer[any]{
				string(ops.AskSchema): {Err: schema}, string(ops.AskLate): {Err: none}, string(ops.AskPauses): {Err: none},
			}))
			expect.That(t, len(v.Problems) == want && (v.State == ops.Well) == (by != ""), "%q, %v: %+v", by, schema, v)
		}
	}
}
