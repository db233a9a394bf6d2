-- Programs before this version write a row for the last sweep of a pipeline, and read it.
INSERT INTO orderclose_schema (version_id, is_applied, oldest) VALUES (0, 0, 27);

-- One process at a time holds a lease, until it gives it back or the lease ends.
CREATE TABLE IF NOT EXISTS leases (
  name     VARCHAR(249) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  holder   VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  until_ms BIGINT       NOT NULL COMMENT 'in unix milliseconds, by the clock of this server',
  PRIMARY KEY (name)
) ENGINE = InnoDB;

-- Up to which time of their close orders were asked about again.
CREATE TABLE IF NOT EXISTS rechecks (
  name          VARCHAR(300) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'of the close topic, and the time after the close',
  checked_until DATETIME(3)  NOT NULL,
  PRIMARY KEY (name)
) ENGINE = InnoDB;

-- What the database loop did in each hour, for 90 days. Each statement can be repeated, if this step fails in the middle.
ALTER TABLE sweeps ADD COLUMN hour DATETIME(3) NOT NULL DEFAULT '1970-01-01 00:00:00' COMMENT 'when the period began';
ALTER TABLE sweeps ADD COLUMN missed BIGINT NOT NULL DEFAULT 0 COMMENT 'closed, since the pipeline had missed them';
ALTER TABLE sweeps ADD COLUMN after_pause BIGINT NOT NULL DEFAULT 0 COMMENT 'closed, after a pause had ended';
ALTER TABLE sweeps ADD COLUMN after_failure BIGINT NOT NULL DEFAULT 0 COMMENT 'closed, after a try or the database had failed';
ALTER TABLE sweeps ADD COLUMN not_closed BIGINT NOT NULL DEFAULT 0 COMMENT 'tried for the first time, and not closed';
ALTER TABLE sweeps ADD COLUMN state VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '' COMMENT 'finished or unfinished';
ALTER TABLE sweeps ADD COLUMN ended_at DATETIME(3) NULL COMMENT 'when the state was written';
ALTER TABLE sweeps ADD COLUMN took_ms BIGINT NOT NULL DEFAULT 0;
ALTER TABLE sweeps DROP COLUMN finished_at;
ALTER TABLE sweeps DROP COLUMN order_id;
ALTER TABLE sweeps DROP PRIMARY KEY, ADD PRIMARY KEY (name, hour);
