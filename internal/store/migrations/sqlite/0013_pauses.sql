-- +goose Up
-- Each close reads this table first: no order is closed by a path that is paused. A category of ''
-- stands for all orders.
CREATE TABLE pauses (
  path       TEXT    NOT NULL,
  category   TEXT    NOT NULL,
  until_at   INTEGER NOT NULL,
  reason     TEXT    NOT NULL,
  created_at INTEGER NOT NULL,
  PRIMARY KEY (path, category)
) WITHOUT ROWID;
