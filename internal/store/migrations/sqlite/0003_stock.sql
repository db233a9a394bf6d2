-- +goose Up
-- An order moves its quantity from available to reserved; closing or cancelling
-- it moves it back; shipping takes it out of reserved.
CREATE TABLE stock (
  sku_id    TEXT    NOT NULL PRIMARY KEY,
  available INTEGER NOT NULL CHECK (available >= 0),
  reserved  INTEGER NOT NULL CHECK (reserved >= 0)
) WITHOUT ROWID;
