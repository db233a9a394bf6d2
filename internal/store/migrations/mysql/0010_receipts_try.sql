-- +goose Up
-- Which transaction wrote a receipt: after a commit without an answer this tells
-- whether it was done.
ALTER TABLE receipts ADD COLUMN try BIGINT NOT NULL DEFAULT 0 COMMENT 'a random number for each transaction';
