-- What a close returned to the stock is in its receipt, which has the order's only key. Programs before this version write rows of the
-- table stock_ledger in its place, and leave the column NULL. Each statement adds a column at the end, at once.
ALTER TABLE receipts ADD COLUMN returned MEDIUMTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL COMMENT 'in JSON: the quantity of each SKU that came back';
ALTER TABLE receipts ADD COLUMN left_out VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '' COMMENT 'why a quantity is 0';
