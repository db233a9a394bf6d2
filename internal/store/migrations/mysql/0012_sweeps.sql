-- +goose Up
-- When a sweep last finished, by this server's clock, so that one process of many
-- sweeps in each period.
CREATE TABLE sweeps (
  name        VARCHAR(249) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'of the close topic: one pipeline, one sweep',
  finished_at DATETIME(3)  NOT NULL,
  PRIMARY KEY (name)
) ENGINE = InnoDB;
