-- The steps that were applied. Each step adds a row when it ends.
CREATE TABLE IF NOT EXISTS orderclose_schema (
  id         INTEGER PRIMARY KEY AUTOINCREMENT,
  version_id INTEGER NOT NULL,
  is_applied INTEGER NOT NULL,
  tstamp     TIMESTAMP DEFAULT (datetime('now'))
);
