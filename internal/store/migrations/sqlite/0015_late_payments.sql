-- Payments that arrived after their order was closed, and what became of the money. A row without a
-- payment's id was found by asking the provider; a later row of the same order with an id takes its place.
CREATE TABLE late_payments (
  id          INTEGER PRIMARY KEY AUTOINCREMENT,
  order_id    TEXT    NOT NULL,
  payment_id  TEXT    NOT NULL DEFAULT '', -- of the provider
  amount      INTEGER NULL, -- in minor units of the currency
  currency    TEXT    NOT NULL DEFAULT '',
  source      TEXT    NOT NULL, -- callback or recheck
  found_at    INTEGER NOT NULL,
  resolved_at INTEGER NULL,
  resolution  TEXT    NOT NULL DEFAULT '', -- refunded or reopened
  resolved_by TEXT    NOT NULL DEFAULT ''
);
CREATE UNIQUE INDEX late_payments_payment ON late_payments (order_id, payment_id);
CREATE INDEX late_payments_unresolved ON late_payments (resolved_at, found_at);
