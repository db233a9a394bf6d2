-- The orders of a shop without tables of its own. All times are UTC. No column defaults to the server's
-- clock, which may have another time zone. Ids are up to 64 bytes and compare exactly.
-- Each statement but the last can be repeated, if this step fails in the middle.
CREATE TABLE IF NOT EXISTS order_items (
  order_id VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  line_no  INT         NOT NULL,
  sku_id   VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  quantity BIGINT      NOT NULL,
  PRIMARY KEY (order_id, line_no),
  CONSTRAINT order_items_quantity CHECK (quantity > 0)
) ENGINE = InnoDB;
-- An order moves its quantity from available to reserved. A close or cancellation
-- moves it back, and shipping removes it from reserved.
CREATE TABLE IF NOT EXISTS stock (
  sku_id    VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  available BIGINT      NOT NULL,
  reserved  BIGINT      NOT NULL,
  PRIMARY KEY (sku_id),
  CONSTRAINT stock_available CHECK (available >= 0),
  CONSTRAINT stock_reserved CHECK (reserved >= 0)
) ENGINE = InnoDB;
-- Programs before version 14 have these steps one by one.
INSERT INTO orderclose_schema (version_id, is_applied) VALUES (1, 1), (2, 1), (3, 1);
CREATE TABLE orders (
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
) ENGINE = InnoDB;
