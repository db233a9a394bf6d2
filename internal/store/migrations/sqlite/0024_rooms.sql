-- The steps of the tables of rooms that were applied. The row 0 of a room is added before its first step.
CREATE TABLE IF NOT EXISTS orderclose_rooms (
  room   TEXT    NOT NULL,
  number INTEGER NOT NULL,
  PRIMARY KEY (room, number)
) WITHOUT ROWID;
