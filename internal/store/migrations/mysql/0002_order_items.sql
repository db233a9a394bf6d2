-- +goose Up
CREATE TABLE order_items (
  order_id VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  line_no  INT         NOT NULL,
  sku_id   VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  quantity BIGINT      NOT NULL,
  PRIMARY KEY (order_id, line_no),
  CONSTRAINT order_items_quantity CHECK (quantity > 0)
) ENGINE = InnoDB;
