-- The schema at version 13, as commit fc16a75 printed it.
CREATE TABLE orderclose_schema (
  id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  version_id BIGINT NOT NULL,
  is_applied BOOLEAN NOT NULL,
  tstamp DATETIME NULL DEFAULT CURRENT_TIMESTAMP,
  PRIMARY KEY (id)
);
INSERT INTO orderclose_schema (version_id, is_applied) VALUES (0, 1);

-- 0001_orders.sql
-- All times are UTC. No column defaults to the server's clock, which may have
-- another time zone. Ids are up to 64 bytes and compare exactly.
CREATE TABLE orders (
  id         VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  category   VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  status     TINYINT     NOT NULL COMMENT '0 unpaid, 1 paid, 2 closed, 3 cancelled',
  created_at DATETIME(3) NOT NULL,
  expire_at  DATETIME(3) NOT NULL COMMENT 'when it is closed if still unpaid',
  paid_at    DATETIME(3) NULL,
  closed_at  DATETIME(3) NULL,
  version    BIGINT      NOT NULL COMMENT 'one more with every change of status',
  PRIMARY KEY (id),
  KEY orders_overdue (status, expire_at, id)
) ENGINE = InnoDB;
INSERT INTO orderclose_schema (version_id, is_applied) VALUES (1, 1);

-- 0002_order_items.sql
CREATE TABLE order_items (
  order_id VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  line_no  INT         NOT NULL,
  sku_id   VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  quantity BIGINT      NOT NULL,
  PRIMARY KEY (order_id, line_no),
  CONSTRAINT order_items_quantity CHECK (quantity > 0)
) ENGINE = InnoDB;
INSERT INTO orderclose_schema (version_id, is_applied) VALUES (2, 1);

-- 0003_stock.sql
-- An order moves its quantity from available to reserved. A close or cancellation
-- moves it back, and shipping removes it from reserved.
CREATE TABLE stock (
  sku_id    VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  available BIGINT      NOT NULL,
  reserved  BIGINT      NOT NULL,
  PRIMARY KEY (sku_id),
  CONSTRAINT stock_available CHECK (available >= 0),
  CONSTRAINT stock_reserved CHECK (reserved >= 0)
) ENGINE = InnoDB;
INSERT INTO orderclose_schema (version_id, is_applied) VALUES (3, 1);

-- 0004_stock_ledger.sql
-- Released or shipped stock, and why. The key ensures that it happens once.
CREATE TABLE stock_ledger (
  order_id   VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  sku_id     VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  kind       VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'close or cancel',
  quantity   BIGINT      NOT NULL,
  created_at DATETIME(3) NOT NULL,
  PRIMARY KEY (order_id, sku_id, kind)
) ENGINE = InnoDB;
INSERT INTO orderclose_schema (version_id, is_applied) VALUES (4, 1);

-- 0005_receipts.sql
-- One row for each order that was closed, written with its close.
CREATE TABLE receipts (
  order_id    VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  verdict     VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  due         DATETIME(3) NOT NULL,
  closed_at   DATETIME(3) NOT NULL,
  path        VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'pipeline, sweep or touch',
  attempts    INT         NOT NULL COMMENT 'how often closing it failed before',
  lateness_ms BIGINT      NOT NULL COMMENT 'closed_at - due',
  PRIMARY KEY (order_id)
) ENGINE = InnoDB;
INSERT INTO orderclose_schema (version_id, is_applied) VALUES (5, 1);

-- 0006_outbox_events.sql
-- Events on their way to Kafka: written in the transaction of the close, deleted once
-- Kafka has them. The table stays small and needs no index but its key.
CREATE TABLE outbox_events (
  id         BIGINT      NOT NULL AUTO_INCREMENT,
  order_id   VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'the key of the record',
  payload    MEDIUMTEXT  CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'in JSON: the event without what the rest of the row tells',
  created_at DATETIME(3) NOT NULL,
  PRIMARY KEY (id)
) ENGINE = InnoDB;
INSERT INTO orderclose_schema (version_id, is_applied) VALUES (6, 1);

-- 0007_refund_intents.sql
-- Money that a customer paid and gets back: the payment came after the order was
-- closed, cancelled or paid by another payment. The key ensures one row per payment.
-- Each statement but the last can be repeated, if this step fails in the middle.
CREATE TABLE IF NOT EXISTS refund_intents (
  order_id   VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  payment_id VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  reason     VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'closed, cancelled or paid_twice',
  created_at DATETIME(3) NOT NULL,
  PRIMARY KEY (order_id, payment_id)
) ENGINE = InnoDB;
ALTER TABLE stock_ledger
  MODIFY COLUMN kind VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'close or cancel (back to available) or ship (gone)';
ALTER TABLE orders
  MODIFY COLUMN status TINYINT NOT NULL COMMENT '0 unpaid, 1 paid, 2 closed, 3 cancelled, 4 shipped, 5 confirmed',
  ADD COLUMN payment_id VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL COMMENT 'the payment that made it paid';
INSERT INTO orderclose_schema (version_id, is_applied) VALUES (7, 1);

-- 0010_receipts_try.sql
-- The transaction that wrote a receipt: after a commit without an answer, this
-- column shows whether the commit was done.
ALTER TABLE receipts ADD COLUMN try BIGINT NOT NULL DEFAULT 0 COMMENT 'a random number for each transaction';
INSERT INTO orderclose_schema (version_id, is_applied) VALUES (10, 1);

-- 0011_outbox_schedules.sql
-- Orders whose close is to be scheduled: written with the order, deleted once Kafka
-- has their records. The table stays small and needs no index but its key.
CREATE TABLE outbox_schedules (
  id         BIGINT      NOT NULL AUTO_INCREMENT,
  order_id   VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'the key of the record',
  payload    MEDIUMTEXT  CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'the value of the record, in JSON',
  created_at DATETIME(3) NOT NULL,
  PRIMARY KEY (id)
) ENGINE = InnoDB;
INSERT INTO orderclose_schema (version_id, is_applied) VALUES (11, 1);

-- 0012_sweeps.sql
-- When a sweep last finished, by this server's clock, so that one process of many
-- sweeps in each period.
CREATE TABLE sweeps (
  name        VARCHAR(249) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'of the close topic: one pipeline, one sweep',
  finished_at DATETIME(3)  NOT NULL,
  PRIMARY KEY (name)
) ENGINE = InnoDB;
INSERT INTO orderclose_schema (version_id, is_applied) VALUES (12, 1);

-- 0013_pauses.sql
-- Each close reads this table first: no order is closed by a path that is paused. A category of ''
-- stands for all orders.
CREATE TABLE pauses (
  path       VARCHAR(16)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  category   VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  until_at   DATETIME(3)  NOT NULL,
  reason     VARCHAR(500) CHARACTER SET utf8mb4 NOT NULL,
  created_at DATETIME(3)  NOT NULL,
  PRIMARY KEY (path, category)
) ENGINE = InnoDB;
INSERT INTO orderclose_schema (version_id, is_applied) VALUES (13, 1);
