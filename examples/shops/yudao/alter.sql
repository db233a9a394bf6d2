-- What orderclose needs in the tables of yudao's mall. Run the statements at a quiet time, in this order.
ALTER TABLE trade_order
  ADD KEY status_created (status, create_time, id), ALGORITHM = INPLACE, LOCK = NONE;
ALTER TABLE trade_order_item
  ADD KEY by_order (order_id), ALGORITHM = INPLACE, LOCK = NONE;
ALTER TABLE promotion_coupon
  ADD KEY by_order (use_order_id), ALGORITHM = INPLACE, LOCK = NONE;
