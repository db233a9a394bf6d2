-- Programs before this version write a row for the last sweep of a pipeline, and read it.
INSERT INTO orderclose_schema (version_id, is_applied, oldest) VALUES (0, 0, 27);

-- One process at a time holds a lease, until it gives it back or the lease ends, by the clock of this server.
CREATE TABLE IF NOT EXISTS leases (
  name     VARCHAR(249) COLLATE "C" NOT NULL,
  holder   VARCHAR(255) COLLATE "C" NOT NULL,
  until_ms BIGINT NOT NULL,
  PRIMARY KEY (name)
);

-- Up to which time of their close orders were asked about again. The name is that of the close topic, and the time after the close.
CREATE TABLE IF NOT EXISTS rechecks (
  name          VARCHAR(300) COLLATE "C" NOT NULL,
  checked_until TIMESTAMPTZ(3) NOT NULL,
  PRIMARY KEY (name)
);

-- What the database loop did in each hour, for 90 days: orders that it closed because the pipeline had missed them, because a pause had
-- ended, or because a try or the database had failed, and orders that it tried for the first time and did not close.
ALTER TABLE sweeps ADD COLUMN IF NOT EXISTS hour TIMESTAMPTZ(3) NOT NULL DEFAULT '1970-01-01 00:00:00+00';
ALTER TABLE sweeps ADD COLUMN IF NOT EXISTS missed BIGINT NOT NULL DEFAULT 0;
ALTER TABLE sweeps ADD COLUMN IF NOT EXISTS after_pause BIGINT NOT NULL DEFAULT 0;
ALTER TABLE sweeps ADD COLUMN IF NOT EXISTS after_failure BIGINT NOT NULL DEFAULT 0;
ALTER TABLE sweeps ADD COLUMN IF NOT EXISTS not_closed BIGINT NOT NULL DEFAULT 0;
ALTER TABLE sweeps ADD COLUMN IF NOT EXISTS state VARCHAR(16) COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE sweeps ADD COLUMN IF NOT EXISTS ended_at TIMESTAMPTZ(3) NULL;
ALTER TABLE sweeps ADD COLUMN IF NOT EXISTS took_ms BIGINT NOT NULL DEFAULT 0;
ALTER TABLE sweeps DROP COLUMN IF EXISTS finished_at, DROP COLUMN IF EXISTS order_id;
ALTER TABLE sweeps DROP CONSTRAINT IF EXISTS sweeps_pkey, ADD PRIMARY KEY (name, hour);
