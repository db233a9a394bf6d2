-- One row for each order that orderclose has marked as paid, written with that. It has the event order.paid, so that the event can be
-- written again.
CREATE TABLE IF NOT EXISTS paid_receipts (
  paid_at  TIMESTAMPTZ(3) NOT NULL,
  order_id VARCHAR(64) COLLATE "C" NOT NULL,
  payload  TEXT NOT NULL,
  PRIMARY KEY (paid_at, order_id)
);
