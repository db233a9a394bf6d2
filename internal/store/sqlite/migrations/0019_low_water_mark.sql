-- The low-water mark of orders that are found by their primary key. This database needs none, but has the same tables.
ALTER TABLE sweeps ADD COLUMN order_id INTEGER NULL;
