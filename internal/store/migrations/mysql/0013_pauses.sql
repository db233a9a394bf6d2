-- +goose Up
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
