-- +goose Up
-- Released or shipped stock, and why. The key ensures that it happens once.
CREATE TABLE stock_ledger (
  order_id   VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  sku_id     VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  kind       VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'close or cancel',
  quantity   BIGINT      NOT NULL,
  created_at DATETIME(3) NOT NULL,
  PRIMARY KEY (order_id, sku_id, kind)
) ENGINE = InnoDB;
