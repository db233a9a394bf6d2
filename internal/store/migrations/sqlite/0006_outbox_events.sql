-- +goose Up
-- AUTOINCREMENT: a deleted id is never used again.
CREATE TABLE outbox_events (
  id         INTEGER PRIMARY KEY AUTOINCREMENT,
  order_id   TEXT    NOT NULL,
  payload    TEXT    NOT NULL,
  created_at INTEGER NOT NULL
);
