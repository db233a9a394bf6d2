-- Programs before this version write a row for the last sweep of a pipeline, and read it.
INSERT INTO orderclose_schema (version_id, is_applied, oldest) VALUES (0, 0, 27);
-- One process at a time holds a lease, until it gives it back or the lease ends.
CREATE TABLE leases (
  name     TEXT    NOT NULL,
  holder   TEXT    NOT NULL,
  until_ms INTEGER NOT NULL,
  PRIMARY KEY (name)
) WITHOUT ROWID;
-- Up to which time of their close orders were asked about again.
CREATE TABLE rechecks (
  name          TEXT    NOT NULL,
  checked_until INTEGER NOT NULL,
  PRIMARY KEY (name)
) WITHOUT ROWID;
-- What the database loop did in each hour, for 90 days.
DROP TABLE sweeps;
CREATE TABLE sweeps (name TEXT NOT NULL,
  hour          INTEGER NOT NULL,
  missed        INTEGER NOT NULL DEFAULT 0,
  after_pause   INTEGER NOT NULL DEFAULT 0,
  after_failure INTEGER NOT NULL DEFAULT 0,
  not_closed    INTEGER NOT NULL DEFAULT 0,
  state         TEXT    NOT NULL DEFAULT '',
  ended_at      INTEGER NULL,
  took_ms       INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (name, hour)
) WITHOUT ROWID;
