-- For due times by rule, which no column of the orders has. All times are unix microseconds in UTC.

-- Each change of the delays in topics.yaml: from when a delay holds for orders that are created then. The first row of a
-- pipeline's category begins at 0. A category of '' stands for all orders without a row of their own. -1 means never.
CREATE TABLE IF NOT EXISTS order_delays (
  pipeline VARCHAR(249) COLLATE "C" NOT NULL,
  category VARCHAR(255) COLLATE "C" NOT NULL,
  since_us BIGINT NOT NULL,
  delay_us BIGINT NOT NULL,
  PRIMARY KEY (pipeline, category, since_us)
);

-- Orders that were postponed, and their delay since they were created. Rows of closed orders may be deleted.
CREATE TABLE IF NOT EXISTS postponed_orders (
  order_id     VARCHAR(64) COLLATE "C" NOT NULL,
  delay_us     BIGINT NOT NULL,
  postponed_at TIMESTAMPTZ(3) NOT NULL,
  PRIMARY KEY (order_id)
);
CREATE INDEX IF NOT EXISTS postponed_delays ON postponed_orders (delay_us);
