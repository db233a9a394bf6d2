-- +goose Up
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
