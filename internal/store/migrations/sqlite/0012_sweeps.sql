-- +goose Up
-- When a sweep last finished, so that one process of many sweeps in each period.
CREATE TABLE sweeps (
  name        TEXT    NOT NULL, -- the close topic: each pipeline has one sweep
  finished_at INTEGER NOT NULL,
  PRIMARY KEY (name)
) WITHOUT ROWID;
