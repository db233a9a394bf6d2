-- +goose Up
-- An order moves its quantity from available to reserved. A close or cancellation
-- moves it back, and shipping removes it from reserved.
CREATE TABLE stock (
  sku_id    TEXT    NOT NULL PRIMARY KEY,
  available INTEGER NOT NULL CHECK (available >= 0),
  reserved  INTEGER NOT NULL CHECK (reserved >= 0)
) WITHOUT ROWID;
