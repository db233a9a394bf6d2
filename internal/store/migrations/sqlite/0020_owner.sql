-- Each order has one receipt by its id, so the ids of all orders of a database must be those of one table. One row has its name.
ALTER TABLE orderclose_schema ADD COLUMN owner TEXT NULL;
