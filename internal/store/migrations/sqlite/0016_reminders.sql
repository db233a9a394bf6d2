-- The reminders that were written: an order gets each only once for a due time. The rows are deleted a week
-- after the due time. All times are unix milliseconds.
CREATE TABLE order_reminders (
  due_at     INTEGER NOT NULL, -- when the order was due then: an order that is postponed is reminded again
  order_id   TEXT    NOT NULL,
  before_ms  INTEGER NOT NULL, -- how long before the deadline that the customer sees
  created_at INTEGER NOT NULL,
  PRIMARY KEY (due_at, order_id, before_ms)
) WITHOUT ROWID;
