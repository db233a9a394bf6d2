-- The reminders that were written: an order gets each only once for a due time. The rows are deleted a week
-- after the due time. All times are UTC. Each statement can be repeated, if this step fails in the middle.
CREATE TABLE IF NOT EXISTS order_reminders (
  due_at     DATETIME(3) NOT NULL COMMENT 'when the order was due then: an order that is postponed is reminded again',
  order_id   VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  before_ms  BIGINT      NOT NULL COMMENT 'how long before the deadline that the customer sees',
  created_at DATETIME(3) NOT NULL,
  PRIMARY KEY (due_at, order_id, before_ms)
) ENGINE = InnoDB;
