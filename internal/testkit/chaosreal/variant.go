//go:build linux

package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/testkit/servers"
)

// variant is what a run has that the default run has not.
type variant struct {
	mapped  bool   // MAPPED=1: orders are in a shop's own tables
	secured bool   // SECURED=1: the pipeline connects to the brokers by TLS and SASL
	other   string // orderclose of another version, for the second process of each stage; "": none
	power   bool   // POWER=1: the only faults are cuts of power, and each server has a disk whose power can be cut
	brokers int    // BROKERS: one or three
	sync    string // SYNC: the key sync of topics.yaml; "": its default
}

// synced reports whether brokers write a record to disk before they acknowledge it, but for those of the close topic by default.
func (v variant) synced() bool { return v.sync == "always" || v.sync == "" && v.brokers == 1 }

// String names the variant, as reports do: "" for none.
func (v variant) String() string {
	var all []string
	for name, on := range map[string]bool{"mapped tables": v.mapped, "TLS and SASL": v.secured, "two versions": v.other != "",
		"one broker": v.brokers == 1, "cuts of power": v.power, "sync: " + v.sync: v.sync != ""} {
		if on {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// ---- A shop's own tables -----------------------------------------------------

// ownTables are the tables of the variant, without the types that differ. The shop, the faults and the judge use
// them through views that have the names and columns of the reference schema; the pipeline may not use views.
var ownTables = []string{
	"CREATE TABLE shop_order (no INT64 AUTO, order_no TEXT64 NOT NULL, kind TEXT64 NOT NULL, state SMALLINT NOT NULL, made MOMENT NOT NULL, " +
		"pay_before MOMENT NOT NULL," +
		" paid MOMENT NULL, gone MOMENT NULL, changes INT64 NOT NULL, payment TEXT64 NULL, PRIMARY KEY (no), CONSTRAINT uk_order_no UNIQUE (order_no))",
	"CREATE INDEX state_pay_before ON shop_order (state, pay_before, order_no)",
	"CREATE TABLE shop_line (order_no TEXT64 NOT NULL, line INT NOT NULL, goods TEXT64 NOT NULL, num INT64 NOT NULL, PRIMARY KEY (order_no, line))",
	"CREATE TABLE shop_goods (goods TEXT64 NOT NULL, free INT64 NOT NULL CHECK (free >= 0), held INT64 NOT NULL CHECK (held >= 0), PRIMARY KEY (goods))",
	"CREATE VIEW orders AS SELECT order_no AS id, kind AS category, state AS status, made AS created_at, pay_before AS expire_at, paid AS paid_at," +
		" gone AS closed_at, changes AS version, payment AS payment_id FROM shop_order",
	"CREATE VIEW order_items AS SELECT order_no AS order_id, line AS line_no, goods AS sku_id, num AS quantity FROM shop_line",
	"CREATE VIEW stock AS SELECT goods AS sku_id, free AS available, held AS reserved FROM shop_goods",
}

// ownMapping is the mapping of ownTables, for topics.yaml. Its argument is the type of a time.
const ownMapping = `orders:
  table: shop_order
  id: {column: order_no, type: text, index: uk_order_no}
  status: {column: state, from: 0, to: 2, paid: [1, 4, 5], closed: [3]}
  due: {column: pay_before, %[1]s}
  created: {column: made, %[1]s}
  closed_at: gone
  category: kind
  lock: changes
  payment_id: payment
  items: {table: shop_line, order: order_no, sku: goods, quantity: num}
  stock: {table: shop_goods, sku: goods, available: free, reserved: held}
`

// topics adds the mapping to a topics.yaml. After a cut of power overdue orders must start a sweep, so none comes by itself.
func (v variant) topics(text string, d *database) string {
	if v.sync != "" {
		text += "sync: " + v.sync + "\n"
	}
	if v.power {
		text = strings.NewReplacer("period: 5s", "period: 1h", "2s, 5s]", "2s, 5s, 30s]").Replace(text) // a burst waits in few hops
	}
	if v.mapped {
		text += fmt.Sprintf(ownMapping, d.mappedTime)
	}
	return text
}

// createTables creates the shop's own tables.
func (v variant) createTables(ctx context.Context, d *database, exec func(ctx context.Context, query string) error) error {
	if !v.mapped {
		return nil
	}
	for _, query := range ownTables {
		if err := exec(ctx, d.types.Replace(query)); err != nil {
			return fmt.Errorf("%s: %w", query, err)
		}
	}
	return nil
}

// ofTable are the words before the name of a table that a statement locks or rebuilds.
var ofTable = strings.NewReplacer("TABLE orders", "TABLE shop_order", "TABLES orders", "TABLES shop_order", "FULL orders", "FULL shop_order")

// table returns a statement that locks or rebuilds the shop's own table in place of the view orders. A view can neither
// be locked as a table nor rebuilt.
func (v variant) table(query string) string {
	if v.mapped {
		query = ofTable.Replace(query)
	}
	return query
}

// ---- TLS and SASL ------------------------------------------------------------

// Access of the pipeline to a secured listener.
const (
	kafkaUser     = "pipeline"
	kafkaPassword = "of the pipeline"
	// reauthenticateAfter is how long a connection is authenticated: faults come between.
	reauthenticateAfter = "20000"
)

// secureListener creates certificates in dir, and returns the settings of brokers that make the listener CLIENT take
// TLS and SASL only. All else connects to another listener.
func (v variant) secureListener(ctx context.Context, dir string) ([]string, error) {
	if !v.secured {
		return nil, nil
	}
	if err := servers.Run(ctx, "kafka-secured.sh", nil, "authority", dir); err != nil {
		return nil, err
	}
	of := func(setting string) string { return "listener.name.client." + setting }
	return []string{
		"listener.security.protocol.map=INNER:PLAINTEXT,CLIENT:SASL_SSL,CONTROLLER:PLAINTEXT",
		of("ssl.keystore.type=PEM"), of("ssl.keystore.location=" + filepath.Join(dir, "tls", "broker.pem")),
		of("sasl.enabled.mechanisms=PLAIN"), "connections.max.reauth.ms=" + reauthenticateAfter,
		of(fmt.Sprintf("plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_%s=%q;", kafkaUser, kafkaPassword)),
	}, nil
}

// environ returns the environment of a process of the pipeline.
func (v variant) environ(dir string) []string {
	if !v.secured {
		return nil
	}
	return []string{environ.EnvTLSCA + "=" + filepath.Join(dir, "tls", "ca.crt"),
		environ.EnvSASLMechanism + "=PLAIN", environ.EnvSASLUser + "=" + kafkaUser, environ.EnvSASLPassword + "=" + kafkaPassword}
}

// ---- Two versions ------------------------------------------------------------

// program returns the command of the n-th process of a stage. The second process runs the other version, if there is one.
func (v variant) program(cmd *exec.Cmd, n int) *exec.Cmd {
	if v.other != "" && n == 1 {
		cmd.Path = v.other
	}
	return cmd
}
