"""A shop: an order in one database takes an item from the stock in another."""
