-- The low-water mark of orders that are found by their primary key, and the position of the daily reading of all of them. Both
-- have rows of their own in this table; the column is NULL in the others.
ALTER TABLE sweeps ADD COLUMN order_id INTEGER NULL;
