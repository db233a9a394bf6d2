-- +goose Up
-- One row for each order that was closed, written with its close.
CREATE TABLE receipts (
  order_id    TEXT    NOT NULL PRIMARY KEY,
  verdict     TEXT    NOT NULL,
  due         INTEGER NOT NULL,
  closed_at   INTEGER NOT NULL,
  path        TEXT    NOT NULL, -- pipeline, sweep or touch
  attempts    INTEGER NOT NULL, -- how many attempts failed before
  lateness_ms INTEGER NOT NULL  -- closed_at - due
) WITHOUT ROWID;
