-- The tables beside the orders. All times are UTC. Each statement can be repeated, if this step fails in
-- the middle.

-- Released or shipped stock, and why. The key ensures that it happens once.
CREATE TABLE IF NOT EXISTS stock_ledger (
  order_id   VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  sku_id     VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  kind       VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'close or cancel (back to available) or ship (gone)',
  quantity   BIGINT      NOT NULL,
  created_at DATETIME(3) NOT NULL,
  PRIMARY KEY (order_id, sku_id, kind)
) ENGINE = InnoDB;

-- One row for each order that was closed, written with its close. Nothing writes the column try any more.
CREATE TABLE IF NOT EXISTS receipts (
  order_id    VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  verdict     VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  due         DATETIME(3) NOT NULL,
  closed_at   DATETIME(3) NOT NULL,
  path        VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'pipeline, sweep or touch',
  attempts    INT         NOT NULL COMMENT 'how often closing it failed before',
  lateness_ms BIGINT      NOT NULL COMMENT 'closed_at - due',
  try         BIGINT      NOT NULL DEFAULT 0 COMMENT 'a random number for each transaction',
  PRIMARY KEY (order_id)
) ENGINE = InnoDB;

-- Events on their way to Kafka: written in the transaction of the close, deleted once
-- Kafka has them. The table stays small and needs no index but its key.
CREATE TABLE IF NOT EXISTS outbox_events (
  id         BIGINT      NOT NULL AUTO_INCREMENT,
  order_id   VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'the key of the record',
  payload    MEDIUMTEXT  CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'in JSON: the event without what the rest of the row tells',
  created_at DATETIME(3) NOT NULL,
  PRIMARY KEY (id)
) ENGINE = InnoDB;

-- Orders whose close is to be scheduled: written with the order, deleted once Kafka
-- has their records. The table stays small and needs no index but its key.
CREATE TABLE IF NOT EXISTS outbox_schedules (
  id         BIGINT      NOT NULL AUTO_INCREMENT,
  order_id   VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'the key of the record',
  payload    MEDIUMTEXT  CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'the value of the record, in JSON',
  created_at DATETIME(3) NOT NULL,
  PRIMARY KEY (id)
) ENGINE = InnoDB;

-- When a sweep last finished, by this server's clock, so that one process of many
-- sweeps in each period.
CREATE TABLE IF NOT EXISTS sweeps (
  name        VARCHAR(249) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'of the close topic: one pipeline, one sweep',
  finished_at DATETIME(3)  NOT NULL,
  PRIMARY KEY (name)
) ENGINE = InnoDB;

-- Each close reads this table first: no order is closed by a path that is paused. A category of ''
-- stands for all orders.
CREATE TABLE IF NOT EXISTS pauses (
  path       VARCHAR(16)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  category   VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  until_at   DATETIME(3)  NOT NULL,
  reason     VARCHAR(500) CHARACTER SET utf8mb4 NOT NULL,
  created_at DATETIME(3)  NOT NULL,
  PRIMARY KEY (path, category)
) ENGINE = InnoDB;

-- Programs before version 14 have these steps one by one.
INSERT INTO orderclose_schema (version_id, is_applied) VALUES (4, 1), (5, 1), (6, 1), (10, 1), (11, 1), (12, 1), (13, 1);
