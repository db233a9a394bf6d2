-- Each order has one receipt by its id, so the ids of all orders of a database must be those of one table. One row has its name.
ALTER TABLE orderclose_schema ADD COLUMN owner VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL COMMENT 'in one row: the table to which the receipts belong';
