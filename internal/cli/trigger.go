package cli

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/mapping"
)

func newTrigger(c *common) *cobra.Command {
	var print, on string
	var o store.TriggerOptions
	cmd := &cobra.Command{
		Use:   "trigger --print[=DATABASE] [--drop]",
		Short: "Print a trigger that schedules new orders",
		Long: `Print an AFTER INSERT trigger for the table of orders that topics.yaml maps. For each new
unpaid order it writes the row of outbox_schedules, in the order's transaction: a checkout
needs no change. orderclose run outbox publishes the rows. Read docs/intake.md first.

--on update prints an AFTER UPDATE trigger instead, for a shop whose cart becomes an order by an
UPDATE: it writes the row when the status or the due time of an unpaid order changes. A shop that
does both needs both triggers.

The command changes nothing: run the SQL yourself, as the user who owns the tables. --drop
prints what removes the trigger. After a change of the section orders, drop the trigger and
create it again.`,
		Example: "  orderclose trigger --print | mysql shop\n  orderclose trigger --print=postgres --database shop | psql shop",
		RunE: func(*cobra.Command, []string) error {
			if print == "" {
				return Exit(Usage, errors.New("this command only prints SQL: write --print, or --print=postgres"))
			}
			if on != "insert" && on != "update" {
				return Exit(Usage, fmt.Errorf("--on %s: write --on insert or --on update", on))
			}
			o.OnUpdate = on == "update"
			return c.printTrigger(store.DialectName(print), o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&print, "print", "", "print the SQL, for mysql or postgres")
	f.Lookup("print").NoOptDefVal = string(store.MySQL)
	f.StringVar(&on, "on", "insert", "the statement that makes an order unpaid: insert or update")
	f.BoolVar(&o.Drop, "drop", false, "print the SQL that removes the trigger")
	f.StringVar(&o.Database, "database", "", "the database (of PostgreSQL: the schema) with the table outbox_schedules, if the orders are in another")
	f.StringVar(&o.Table, "table", "", "the table of orders, if each month has one")
	return cmd
}

func (c *common) printTrigger(d store.DialectName, o store.TriggerOptions) error {
	cfg, err := c.load()
	if err != nil {
		return Exit(Usage, err)
	}
	o.Pipeline = cfg.Topics.Close
	orders := cfg.Orders
	if orders == nil {
		orders = mapping.Reference()
	}
	statement, err := store.Trigger(d, orders, o)
	if err != nil {
		return Exit(Usage, err)
	}
	text := statement + ";\n"
	if d == store.MySQL && !o.Drop { // the statement has semicolons of its own
		text = "DELIMITER //\n" + statement + "//\nDELIMITER ;\n"
	}
	return c.printSQL(text)
}

// printSQL prints statements, with -o json in an object.
func (c *common) printSQL(text string) error {
	if c.output == "json" {
		return c.encode(map[string]string{"sql": text})
	}
	_, err := io.WriteString(c.env.Stdout, text)
	return err
}
