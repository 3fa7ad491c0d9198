"""Several ranks as one: how they find one another, and what they sum, gather and broadcast."""
