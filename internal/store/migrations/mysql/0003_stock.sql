-- +goose Up
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
