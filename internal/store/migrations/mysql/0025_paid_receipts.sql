-- One row for each order that orderclose has marked as paid, written with that. It has the event order.paid, so that the event can be
-- written again.
CREATE TABLE IF NOT EXISTS paid_receipts (
  paid_at  DATETIME(3) NOT NULL,
  order_id VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  payload  MEDIUMTEXT  CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'the event, in JSON',
  PRIMARY KEY (paid_at, order_id)
) ENGINE = InnoDB;
