"""The same work done by others: what people would use instead, as their documentation recommends."""
