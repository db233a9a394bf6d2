-- +goose Up
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
