-- The oldest program that can use the schema: the largest value of this column, as the version
-- that the program needs. A step that older programs can work with leaves the column as it is.
-- Any other step begins with: UPDATE orderclose_schema SET oldest = (its own version).
ALTER TABLE orderclose_schema ADD COLUMN oldest INTEGER NOT NULL DEFAULT 14;
