package notices

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/orderclose/orderclose/producer"
)

// Keep is how long a row is kept: several times the week for which the topic keeps events.
const Keep = 30 * 24 * time.Hour

// table has a row for each event that a reader has handled. created_at is in unix milliseconds.
const table = `CREATE TABLE IF NOT EXISTS checkout_notices (
  reader     VARCHAR(32) NOT NULL,
  event      CHAR(64) NOT NULL,
  order_id   %s NOT NULL,
  result     VARCHAR(16) NOT NULL,
  created_at BIGINT NOT NULL,
  PRIMARY KEY (reader, event)
)`

// CreateTables creates the table of handled events if it is missing.
func CreateTables(ctx context.Context, db *sql.DB, d producer.Dialect) error {
	id := "VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
	if d != producer.MySQL { // the others compare texts exactly
		id = "TEXT"
	}
	if _, err := db.ExecContext(ctx, fmt.Sprintf(table, id)); err != nil {
		return fmt.Errorf("create the table of notices: %w", err)
	}
	return nil
}

// DeleteOld deletes the rows of events that the topic no longer has.
func (n *Notices) DeleteOld(ctx context.Context) error {
	_, err := n.o.DB.ExecContext(ctx, "DELETE FROM checkout_notices WHERE created_at < ?", time.Now().Add(-Keep).UnixMilli())
	if err != nil {
		return fmt.Errorf("delete old notices: %w", err)
	}
	return nil
}
