-- The reminders that were written: an order gets each only once for a due time. The rows are deleted a week
-- after the due time.
CREATE TABLE IF NOT EXISTS order_reminders (
  due_at     TIMESTAMPTZ(3) NOT NULL,
  order_id   VARCHAR(64) COLLATE "C" NOT NULL,
  before_ms  BIGINT NOT NULL,
  created_at TIMESTAMPTZ(3) NOT NULL,
  PRIMARY KEY (due_at, order_id, before_ms)
);
