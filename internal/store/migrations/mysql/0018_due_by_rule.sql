-- For due times by rule, which no column of the orders has. All times are unix microseconds in UTC. Each statement can be
-- repeated, if this step fails in the middle.

-- Each change of the delays in topics.yaml: from when a delay holds for orders that are created then. The first row of a
-- pipeline's category begins at 0. A category of '' stands for all orders without a row of their own.
CREATE TABLE IF NOT EXISTS order_delays (
  pipeline VARCHAR(249) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'the name of the close topic',
  category VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  since_us BIGINT       NOT NULL,
  delay_us BIGINT       NOT NULL COMMENT 'in microseconds, -1 is never',
  PRIMARY KEY (pipeline, category, since_us)
) ENGINE = InnoDB;

-- Orders that were postponed, and their delay since they were created. Rows of closed orders may be deleted.
CREATE TABLE IF NOT EXISTS postponed_orders (
  order_id     VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  delay_us     BIGINT      NOT NULL COMMENT 'in microseconds',
  postponed_at DATETIME(3) NOT NULL,
  PRIMARY KEY (order_id),
  KEY postponed_delays (delay_us)
) ENGINE = InnoDB;
