-- For due times by rule, which no column of the orders has. All times are unix microseconds in UTC.

-- Each change of the delays in topics.yaml: from when a delay holds for orders that are created then. The first row of a
-- pipeline's category begins at 0. A category of '' stands for all orders without a row of their own. -1 means never.
CREATE TABLE order_delays (
  pipeline TEXT    NOT NULL,
  category TEXT    NOT NULL,
  since_us INTEGER NOT NULL,
  delay_us INTEGER NOT NULL,
  PRIMARY KEY (pipeline, category, since_us)
) WITHOUT ROWID;

-- Orders that were postponed, and their delay since they were created. Rows of closed orders may be deleted.
CREATE TABLE postponed_orders (
  order_id     TEXT    NOT NULL,
  delay_us     INTEGER NOT NULL,
  postponed_at INTEGER NOT NULL,
  PRIMARY KEY (order_id)
) WITHOUT ROWID;
CREATE INDEX postponed_delays ON postponed_orders (delay_us);
