-- What operators have done, by commands and in the console. Nothing deletes rows.
CREATE TABLE IF NOT EXISTS operator_actions (
  id     INTEGER PRIMARY KEY AUTOINCREMENT,
  at     INTEGER NOT NULL,
  who    TEXT NOT NULL,
  action TEXT NOT NULL,
  result TEXT NOT NULL
);
