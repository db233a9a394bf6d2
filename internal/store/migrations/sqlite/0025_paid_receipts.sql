-- One row for each order that orderclose has marked as paid, written with that. It has the event order.paid, so that the event can be
-- written again. All times are unix milliseconds.
CREATE TABLE paid_receipts (
  paid_at  INTEGER NOT NULL,
  order_id TEXT    NOT NULL,
  payload  TEXT    NOT NULL,
  PRIMARY KEY (paid_at, order_id)
) WITHOUT ROWID;
