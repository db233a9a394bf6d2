-- All tables. All times are unix milliseconds. AUTOINCREMENT: a deleted id is never used again. Ids
-- compare exactly.

-- The steps that were applied. Each step adds a row when it ends. The largest value of oldest is the oldest program that can use the schema, as
-- the version that it needs: a step that older programs cannot work with begins with UPDATE orderclose_schema SET oldest = (its own version).
-- Each order has one receipt by its id, so a database belongs to one close of one table of orders, the owner.
CREATE TABLE IF NOT EXISTS orderclose_schema (
  id         INTEGER PRIMARY KEY AUTOINCREMENT,
  version_id INTEGER NOT NULL,
  is_applied INTEGER NOT NULL,
  tstamp     TIMESTAMP DEFAULT (datetime('now')),
  oldest     INTEGER NOT NULL DEFAULT 1,
  owner      TEXT NULL, -- in one row: the table, status and event to which the receipts belong
  not_before INTEGER NULL -- in the row of the owner, in unix ms: an order that was due earlier stays open (0: none)
);

-- Stock that a shop releases or ships, and why. The key ensures that it happens once. What a close returned is in its receipt.
CREATE TABLE IF NOT EXISTS stock_ledger (
  order_id   TEXT NOT NULL,
  sku_id     TEXT NOT NULL,
  kind       TEXT NOT NULL, -- cancel (back to available) or ship (gone)
  quantity   INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  PRIMARY KEY (order_id, sku_id, kind)
) WITHOUT ROWID;

-- One row for each order that was closed, written with its close. The second question to the payment provider reads the orders closed in a
-- span of time. The times of new rows grow, so the index costs a close little.
CREATE TABLE IF NOT EXISTS receipts (
  order_id    TEXT NOT NULL,
  verdict     TEXT NOT NULL,
  due         INTEGER NOT NULL,
  closed_at   INTEGER NOT NULL,
  path        TEXT NOT NULL, -- pipeline, sweep or touch
  attempts    INTEGER NOT NULL, -- how often closing it failed before
  lateness_ms INTEGER NOT NULL, -- closed_at - due
  returned    TEXT NULL, -- in JSON: the quantity of each SKU that came back
  PRIMARY KEY (order_id)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS receipts_closed_at ON receipts (closed_at, order_id);

-- One row for each order that orderclose has marked as paid, written with that. It has the event order.paid, so that the event can be
-- written again.
CREATE TABLE IF NOT EXISTS paid_receipts (
  paid_at  INTEGER NOT NULL,
  order_id TEXT NOT NULL,
  payload  TEXT NOT NULL, -- the event, in JSON
  PRIMARY KEY (paid_at, order_id)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS paid_receipts_order ON paid_receipts (order_id);

-- Events on their way to Kafka: written in the transaction of the close, deleted once
-- Kafka has them. The table stays small and needs no index but its key. A short form without a type is of a close.
CREATE TABLE IF NOT EXISTS outbox_events (
  id         INTEGER PRIMARY KEY AUTOINCREMENT,
  order_id   TEXT NOT NULL, -- the key of the record
  payload    TEXT NOT NULL, -- in JSON: the event without what the rest of the row tells
  created_at INTEGER NOT NULL,
  kind       TEXT GENERATED ALWAYS AS (
    CASE WHEN json_valid(payload) THEN
      substr(COALESCE(json_extract(payload, '$.type'), json_extract(payload, '$.event'), 'order.closed'), 1, 64)
    END) VIRTUAL
);

-- Orders whose close is to be scheduled: written with the order, deleted once Kafka
-- has their records. The table stays small and needs no index but its key.
CREATE TABLE IF NOT EXISTS outbox_schedules (
  id         INTEGER PRIMARY KEY AUTOINCREMENT,
  order_id   TEXT NOT NULL, -- the key of the record
  payload    TEXT NOT NULL, -- the value of the record, in JSON
  created_at INTEGER NOT NULL
);

-- Payments that arrived after their order was closed, and what became of the money. Written in the
-- transaction that finds the payment, and never deleted by orderclose. A row without a payment's id was
-- found by asking the provider; it may be the same money as a row of the same order with an id.
CREATE TABLE IF NOT EXISTS late_payments (
  id          INTEGER PRIMARY KEY AUTOINCREMENT,
  order_id    TEXT NOT NULL,
  payment_id  TEXT NOT NULL DEFAULT '', -- of the provider, empty if it is unknown
  amount      INTEGER NULL, -- in minor units of the currency, such as cents, NULL if it is unknown
  currency    TEXT NOT NULL DEFAULT '', -- ISO 4217, empty if the amount is unknown
  source      TEXT NOT NULL, -- callback or recheck
  found_at    INTEGER NOT NULL,
  resolved_at INTEGER NULL, -- NULL: nobody has decided yet
  resolution  TEXT NOT NULL DEFAULT '', -- refunded or reopened
  resolved_by TEXT NOT NULL DEFAULT '',
  CONSTRAINT late_payments_payment UNIQUE (order_id, payment_id)
);
CREATE INDEX IF NOT EXISTS late_payments_unresolved ON late_payments (resolved_at, found_at);

-- The reminders that were written: an order gets each only once for a due time. The rows are deleted a week
-- after the due time.
CREATE TABLE IF NOT EXISTS order_reminders (
  due_at     INTEGER NOT NULL, -- when the order was due then: an order whose due time moves is reminded again
  order_id   TEXT NOT NULL,
  before_ms  INTEGER NOT NULL, -- how long before the deadline that the customer sees
  created_at INTEGER NOT NULL,
  PRIMARY KEY (due_at, order_id, before_ms)
) WITHOUT ROWID;

-- For due times by rule, which no column of the orders has: each change of the delays in topics.yaml, from when a delay holds for orders that are
-- created then, in unix microseconds. The first row of a pipeline's category begins at 0. A category of '' stands for all orders without a
-- row of their own.
CREATE TABLE IF NOT EXISTS order_delays (
  pipeline TEXT NOT NULL, -- the name of the close topic
  category TEXT NOT NULL,
  since_us INTEGER NOT NULL,
  delay_us INTEGER NOT NULL, -- in microseconds, -1 is never
  PRIMARY KEY (pipeline, category, since_us)
) WITHOUT ROWID;

-- Each close reads this table first: no order is closed by a path that is paused. A category of ''
-- stands for all orders.
CREATE TABLE IF NOT EXISTS pauses (
  path       TEXT NOT NULL,
  category   TEXT NOT NULL,
  until_at   INTEGER NOT NULL,
  reason     TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  PRIMARY KEY (path, category)
) WITHOUT ROWID;

-- One process at a time holds a lease, until it gives it back or the lease ends.
CREATE TABLE IF NOT EXISTS leases (
  name     TEXT NOT NULL,
  holder   TEXT NOT NULL,
  until_ms INTEGER NOT NULL, -- in unix milliseconds, by the clock of this server
  PRIMARY KEY (name)
) WITHOUT ROWID;

-- What the database loop did in each hour, for 90 days.
CREATE TABLE IF NOT EXISTS sweeps (
  name          TEXT NOT NULL, -- of the close topic
  hour          INTEGER NOT NULL, -- when the period began
  missed        INTEGER NOT NULL DEFAULT 0, -- closed, since the pipeline had missed them
  after_pause   INTEGER NOT NULL DEFAULT 0, -- closed, after a pause had ended
  after_failure INTEGER NOT NULL DEFAULT 0, -- closed, after a try or the database had failed
  not_closed    INTEGER NOT NULL DEFAULT 0, -- tried for the first time, and not closed
  state         TEXT NOT NULL DEFAULT '', -- finished or unfinished
  ended_at      INTEGER NULL, -- when the state was written
  took_ms       INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (name, hour)
) WITHOUT ROWID;

-- Up to which time of their close orders were asked about again.
CREATE TABLE IF NOT EXISTS rechecks (
  name          TEXT NOT NULL, -- of the close topic, and the time after the close
  checked_until INTEGER NOT NULL,
  PRIMARY KEY (name)
) WITHOUT ROWID;

-- What operators have done, by commands and in the console. Nothing deletes rows.
CREATE TABLE IF NOT EXISTS operator_actions (
  id     INTEGER PRIMARY KEY AUTOINCREMENT,
  at     INTEGER NOT NULL,
  who    TEXT NOT NULL, -- user@host, or the user of the console
  action TEXT NOT NULL,
  result TEXT NOT NULL
);

-- The events that the webhook has taken from outbox_events, until they are accepted. All events of an order have the same next_ms.
-- Times are unix milliseconds by the database's clock.
CREATE TABLE IF NOT EXISTS orderclose_webhook_events (
  id       INTEGER PRIMARY KEY AUTOINCREMENT,
  order_id TEXT    NOT NULL,
  payload  TEXT    NOT NULL,
  taken_ms INTEGER NOT NULL,
  next_ms  INTEGER NOT NULL,
  attempts INTEGER NOT NULL DEFAULT 0,
  error    TEXT    NOT NULL DEFAULT ''
);
CREATE INDEX IF NOT EXISTS orderclose_webhook_events_next ON orderclose_webhook_events (next_ms, id);
CREATE INDEX IF NOT EXISTS orderclose_webhook_events_order ON orderclose_webhook_events (order_id, id);
-- Its only row is locked by each process that takes events or chooses the next ones.
CREATE TABLE IF NOT EXISTS orderclose_webhook_state (
  id              INTEGER PRIMARY KEY,
  other_reader_ms INTEGER NOT NULL,
  last_ms         INTEGER NOT NULL
);
INSERT OR IGNORE INTO orderclose_webhook_state (id, other_reader_ms, last_ms) VALUES (1, 0, 0);

-- The orders of a shop without tables of its own.
CREATE TABLE IF NOT EXISTS order_items (
  order_id TEXT NOT NULL,
  line_no  INTEGER NOT NULL,
  sku_id   TEXT NOT NULL,
  quantity INTEGER NOT NULL,
  PRIMARY KEY (order_id, line_no),
  CONSTRAINT order_items_quantity CHECK (quantity > 0)
) WITHOUT ROWID;
-- An order moves its quantity from available to reserved. A close or cancellation
-- moves it back, and shipping removes it from reserved.
CREATE TABLE IF NOT EXISTS stock (
  sku_id    TEXT NOT NULL,
  available INTEGER NOT NULL,
  reserved  INTEGER NOT NULL,
  PRIMARY KEY (sku_id),
  CONSTRAINT stock_available CHECK (available >= 0),
  CONSTRAINT stock_reserved CHECK (reserved >= 0)
) WITHOUT ROWID;
-- No IF NOT EXISTS: a shop's own table of this name is not taken for ours.
CREATE TABLE orders (
  id         TEXT NOT NULL,
  category   TEXT NOT NULL,
  status     INTEGER NOT NULL, -- 0 unpaid, 1 paid, 2 closed, 3 cancelled, 4 shipped, 5 confirmed
  created_at INTEGER NOT NULL,
  expire_at  INTEGER NOT NULL, -- when it is closed if still unpaid
  paid_at    INTEGER NULL,
  closed_at  INTEGER NULL,
  version    INTEGER NOT NULL, -- one more with every change of status
  payment_id TEXT NULL, -- the payment that made it paid
  PRIMARY KEY (id)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS orders_overdue ON orders (status, expire_at, id);
