-- +goose Up
-- When a sweep was last finished: so that one process sweeps in each period,
-- however many there are.
CREATE TABLE sweeps (
  name        TEXT    NOT NULL, -- of the close topic: one pipeline, one sweep
  finished_at INTEGER NOT NULL,
  PRIMARY KEY (name)
) WITHOUT ROWID;
