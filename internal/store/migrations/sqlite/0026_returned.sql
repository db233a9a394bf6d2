-- What a close returned to the stock, in JSON: the quantity of each SKU that came back.
ALTER TABLE receipts ADD COLUMN returned TEXT NULL;
-- Why a quantity is 0.
ALTER TABLE receipts ADD COLUMN left_out TEXT NOT NULL DEFAULT '';
