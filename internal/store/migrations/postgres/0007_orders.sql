-- The orders of a shop without tables of its own. Ids are up to 64 bytes and compare exactly.
CREATE TABLE IF NOT EXISTS order_items (
  order_id VARCHAR(64) COLLATE "C" NOT NULL,
  line_no  INT NOT NULL,
  sku_id   VARCHAR(64) COLLATE "C" NOT NULL,
  quantity BIGINT NOT NULL,
  PRIMARY KEY (order_id, line_no),
  CONSTRAINT order_items_quantity CHECK (quantity > 0)
);
-- An order moves its quantity from available to reserved. A close or cancellation
-- moves it back, and shipping removes it from reserved.
CREATE TABLE IF NOT EXISTS stock (
  sku_id    VARCHAR(64) COLLATE "C" NOT NULL,
  available BIGINT NOT NULL,
  reserved  BIGINT NOT NULL,
  PRIMARY KEY (sku_id),
  CONSTRAINT stock_available CHECK (available >= 0),
  CONSTRAINT stock_reserved CHECK (reserved >= 0)
);
-- Programs before version 14 have these steps one by one.
INSERT INTO orderclose_schema (version_id, is_applied) VALUES (1, 1), (2, 1), (3, 1);
CREATE TABLE orders (
  id         VARCHAR(64) COLLATE "C" NOT NULL,
  category   VARCHAR(64) COLLATE "C" NOT NULL,
  status     SMALLINT NOT NULL, -- 0 unpaid, 1 paid, 2 closed, 3 cancelled, 4 shipped, 5 confirmed
  created_at TIMESTAMPTZ(3) NOT NULL,
  expire_at  TIMESTAMPTZ(3) NOT NULL, -- when it is closed if still unpaid
  paid_at    TIMESTAMPTZ(3) NULL,
  closed_at  TIMESTAMPTZ(3) NULL,
  version    BIGINT NOT NULL, -- one more with every change of status
  payment_id VARCHAR(64) COLLATE "C" NULL, -- the payment that made it paid
  PRIMARY KEY (id)
);
CREATE INDEX orders_overdue ON orders (status, expire_at, id);
