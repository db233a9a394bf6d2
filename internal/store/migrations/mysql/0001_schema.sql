-- All tables. All times are UTC. No column defaults to the server's clock, which may have another time zone, except that of the
-- steps. Ids are up to 64 bytes and compare exactly. Each statement can be repeated, if this step fails in the middle.

-- The steps that were applied. Each step adds a row when it ends. The largest value of oldest is the oldest program that can use the schema, as
-- the version that it needs: a step that older programs cannot work with begins with UPDATE orderclose_schema SET oldest = (its own version).
-- Each order has one receipt by its id, so a database belongs to one close of one table of orders, the owner.
CREATE TABLE IF NOT EXISTS orderclose_schema (
  id         BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  version_id BIGINT          NOT NULL,
  is_applied BOOLEAN         NOT NULL,
  tstamp     DATETIME        NULL DEFAULT CURRENT_TIMESTAMP,
  oldest     BIGINT          NOT NULL DEFAULT 1,
  owner      VARCHAR(255)    CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL COMMENT 'in one row: the table, status and event to which the receipts belong',
  not_before BIGINT          NULL COMMENT 'in the row of the owner, in unix ms: an order that was due earlier stays open (0: none)',
  PRIMARY KEY (id)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- Stock that a shop releases or ships, and why. The key ensures that it happens once. What a close returned is in its receipt.
CREATE TABLE IF NOT EXISTS stock_ledger (
  order_id   VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  sku_id     VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  kind       VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'cancel (back to available) or ship (gone)',
  quantity   BIGINT      NOT NULL,
  created_at DATETIME(3) NOT NULL,
  PRIMARY KEY (order_id, sku_id, kind)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- One row for each order that was closed, written with its close. The second question to the payment provider reads the orders closed in a
-- span of time. The times of new rows grow, so the index costs a close little.
CREATE TABLE IF NOT EXISTS receipts (
  order_id    VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  verdict     VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  due         DATETIME(3) NOT NULL,
  closed_at   DATETIME(3) NOT NULL,
  path        VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'pipeline, sweep or touch',
  attempts    INT         NOT NULL COMMENT 'how often closing it failed before',
  lateness_ms BIGINT      NOT NULL COMMENT 'closed_at - due',
  returned    MEDIUMTEXT  CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL COMMENT 'in JSON: the quantity of each SKU that came back',
  PRIMARY KEY (order_id),
  KEY receipts_closed_at (closed_at, order_id)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- One row for each order that orderclose has marked as paid, written with that. It has the event order.paid, so that the event can be
-- written again.
CREATE TABLE IF NOT EXISTS paid_receipts (
  paid_at  DATETIME(3) NOT NULL,
  order_id VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  payload  MEDIUMTEXT  CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'the event, in JSON',
  PRIMARY KEY (paid_at, order_id),
  KEY paid_receipts_order (order_id)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- Events on their way to Kafka: written in the transaction of the close, deleted once
-- Kafka has them. The table stays small and needs no index but its key. A short form without a type is of a close.
CREATE TABLE IF NOT EXISTS outbox_events (
  id         BIGINT      NOT NULL AUTO_INCREMENT,
  order_id   VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'the key of the record',
  payload    MEDIUMTEXT  CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'in JSON: the event without what the rest of the row tells',
  created_at DATETIME(3) NOT NULL,
  kind       VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin AS (
    CASE WHEN JSON_VALID(payload) THEN
      LEFT(COALESCE(JSON_UNQUOTE(JSON_EXTRACT(payload, '$.type')), JSON_UNQUOTE(JSON_EXTRACT(payload, '$.event')), 'order.closed'), 64)
    END) VIRTUAL COMMENT 'the type of the event',
  PRIMARY KEY (id)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- Orders whose close is to be scheduled: written with the order, deleted once Kafka
-- has their records. The table stays small and needs no index but its key.
CREATE TABLE IF NOT EXISTS outbox_schedules (
  id         BIGINT      NOT NULL AUTO_INCREMENT,
  order_id   VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'the key of the record',
  payload    MEDIUMTEXT  CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'the value of the record, in JSON',
  created_at DATETIME(3) NOT NULL,
  PRIMARY KEY (id)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- Payments that arrived after their order was closed, and what became of the money. Written in the
-- transaction that finds the payment, and never deleted by orderclose. A row without a payment's id was
-- found by asking the provider; it may be the same money as a row of the same order with an id.
CREATE TABLE IF NOT EXISTS late_payments (
  id          BIGINT       NOT NULL AUTO_INCREMENT,
  order_id    VARCHAR(64)  CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  payment_id  VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '' COMMENT 'of the provider, empty if it is unknown',
  amount      BIGINT       NULL COMMENT 'in minor units of the currency, such as cents, NULL if it is unknown',
  currency    VARCHAR(8)   CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '' COMMENT 'ISO 4217, empty if the amount is unknown',
  source      VARCHAR(16)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'callback or recheck',
  found_at    DATETIME(3)  NOT NULL,
  resolved_at DATETIME(3)  NULL COMMENT 'NULL: nobody has decided yet',
  resolution  VARCHAR(16)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '' COMMENT 'refunded or reopened',
  resolved_by VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '',
  PRIMARY KEY (id),
  UNIQUE KEY late_payments_payment (order_id, payment_id),
  KEY late_payments_unresolved (resolved_at, found_at)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- The reminders that were written: an order gets each only once for a due time. The rows are deleted a week
-- after the due time.
CREATE TABLE IF NOT EXISTS order_reminders (
  due_at     DATETIME(3) NOT NULL COMMENT 'when the order was due then: an order whose due time moves is reminded again',
  order_id   VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  before_ms  BIGINT      NOT NULL COMMENT 'how long before the deadline that the customer sees',
  created_at DATETIME(3) NOT NULL,
  PRIMARY KEY (due_at, order_id, before_ms)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- For due times by rule, which no column of the orders has: each change of the delays in topics.yaml, from when a delay holds for orders that are
-- created then, in unix microseconds. The first row of a pipeline's category begins at 0. A category of '' stands for all orders without a
-- row of their own.
CREATE TABLE IF NOT EXISTS order_delays (
  pipeline VARCHAR(249) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'the name of the close topic',
  category VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  since_us BIGINT       NOT NULL,
  delay_us BIGINT       NOT NULL COMMENT 'in microseconds, -1 is never',
  PRIMARY KEY (pipeline, category, since_us)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- Each close reads this table first: no order is closed by a path that is paused. A category of ''
-- stands for all orders.
CREATE TABLE IF NOT EXISTS pauses (
  path       VARCHAR(16)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  category   VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  until_at   DATETIME(3)  NOT NULL,
  reason     VARCHAR(500) CHARACTER SET utf8mb4 NOT NULL,
  created_at DATETIME(3)  NOT NULL,
  PRIMARY KEY (path, category)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- One process at a time holds a lease, until it gives it back or the lease ends.
CREATE TABLE IF NOT EXISTS leases (
  name     VARCHAR(249) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  holder   VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  until_ms BIGINT       NOT NULL COMMENT 'in unix milliseconds, by the clock of this server',
  PRIMARY KEY (name)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- What the database loop did in each hour, for 90 days.
CREATE TABLE IF NOT EXISTS sweeps (
  name          VARCHAR(249) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'of the close topic',
  hour          DATETIME(3)  NOT NULL COMMENT 'when the period began',
  missed        BIGINT       NOT NULL DEFAULT 0 COMMENT 'closed, since the pipeline had missed them',
  after_pause   BIGINT       NOT NULL DEFAULT 0 COMMENT 'closed, after a pause had ended',
  after_failure BIGINT       NOT NULL DEFAULT 0 COMMENT 'closed, after a try or the database had failed',
  not_closed    BIGINT       NOT NULL DEFAULT 0 COMMENT 'tried for the first time, and not closed',
  state         VARCHAR(16)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '' COMMENT 'finished or unfinished',
  ended_at      DATETIME(3)  NULL COMMENT 'when the state was written',
  took_ms       BIGINT       NOT NULL DEFAULT 0,
  PRIMARY KEY (name, hour)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- Up to which time of their close orders were asked about again.
CREATE TABLE IF NOT EXISTS rechecks (
  name          VARCHAR(300) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'of the close topic, and the time after the close',
  checked_until DATETIME(3)  NOT NULL,
  PRIMARY KEY (name)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- What operators have done, by commands and in the console. Nothing deletes rows.
CREATE TABLE IF NOT EXISTS operator_actions (
  id     BIGINT        NOT NULL AUTO_INCREMENT,
  at     DATETIME(3)   NOT NULL,
  who    VARCHAR(255)  CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'user@host, or the user of the console',
  action VARCHAR(2000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  result VARCHAR(2000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  PRIMARY KEY (id)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- The events that the webhook has taken from outbox_events, until they are accepted. All events of an order have the same next_ms.
-- Times are unix milliseconds by the database's clock.
CREATE TABLE IF NOT EXISTS orderclose_webhook_events (
  id       BIGINT       NOT NULL AUTO_INCREMENT,
  order_id VARCHAR(64)  CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  payload  MEDIUMTEXT   CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'the CloudEvent',
  taken_ms BIGINT       NOT NULL,
  next_ms  BIGINT       NOT NULL COMMENT 'the next attempt for the order, or the end of the one that runs, 0: none failed or runs',
  attempts INT          NOT NULL DEFAULT 0,
  error    VARCHAR(500) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '' COMMENT 'of the last attempt',
  PRIMARY KEY (id),
  KEY orderclose_webhook_events_next (next_ms, id),
  KEY orderclose_webhook_events_order (order_id, id)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;
-- Its only row is locked by each process that takes events or chooses the next ones.
CREATE TABLE IF NOT EXISTS orderclose_webhook_state (
  id              INT    NOT NULL,
  other_reader_ms BIGINT NOT NULL COMMENT 'when another program was seen that takes rows of outbox_events, 0: never',
  last_ms         BIGINT NOT NULL COMMENT 'the last change of orderclose_webhook_events',
  PRIMARY KEY (id)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;
INSERT IGNORE INTO orderclose_webhook_state (id, other_reader_ms, last_ms) VALUES (1, 0, 0);

-- The orders of a shop without tables of its own.
CREATE TABLE IF NOT EXISTS order_items (
  order_id VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  line_no  INT         NOT NULL,
  sku_id   VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  quantity BIGINT      NOT NULL,
  PRIMARY KEY (order_id, line_no),
  CONSTRAINT order_items_quantity CHECK (quantity > 0)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;
-- An order moves its quantity from available to reserved. A close or cancellation
-- moves it back, and shipping removes it from reserved.
CREATE TABLE IF NOT EXISTS stock (
  sku_id    VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  available BIGINT      NOT NULL,
  reserved  BIGINT      NOT NULL,
  PRIMARY KEY (sku_id),
  CONSTRAINT stock_available CHECK (available >= 0),
  CONSTRAINT stock_reserved CHECK (reserved >= 0)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;
CREATE TABLE IF NOT EXISTS orders (
  id         VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  category   VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  status     TINYINT     NOT NULL COMMENT '0 unpaid, 1 paid, 2 closed, 3 cancelled, 4 shipped, 5 confirmed',
  created_at DATETIME(3) NOT NULL,
  expire_at  DATETIME(3) NOT NULL COMMENT 'when it is closed if still unpaid',
  paid_at    DATETIME(3) NULL,
  closed_at  DATETIME(3) NULL,
  version    BIGINT      NOT NULL COMMENT 'one more with every change of status',
  payment_id VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL COMMENT 'the payment that made it paid',
  PRIMARY KEY (id),
  KEY orders_overdue (status, expire_at, id)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;
-- A shop's own table of this name is not taken for ours.
INSERT orders (id, category, status, created_at, expire_at, paid_at, closed_at, version, payment_id)
SELECT id, category, status, created_at, expire_at, paid_at, closed_at, version, payment_id FROM orders WHERE 1 = 0;
