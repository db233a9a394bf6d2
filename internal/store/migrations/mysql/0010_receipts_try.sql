-- +goose Up
-- The transaction that wrote a receipt: after a commit without an answer, this
-- column shows whether the commit was done.
ALTER TABLE receipts ADD COLUMN try BIGINT NOT NULL DEFAULT 0 COMMENT 'a random number for each transaction';
